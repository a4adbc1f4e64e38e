"""The decode steps that stand for all those of one call of ``generate``, with their caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from placer.integrations.decoding import DecodeStep, Prefill, loop_arguments
from placer.integrations.key_value_cache import fill, grown, holds_keys, places, tensors, without_values
from placer.tracing import meta_model, trace_here
from placer.workload import make_workload


def prompt(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Token ids and a mask that hides none of them, as a tokenizer gives them."""
    ids = torch.zeros(batch, length, dtype=torch.int64, device="cpu")
    return ids, torch.ones_like(ids)


def decode_steps(
    model: Any, ids: Tensor, steps: int, options: dict[str, Any], autocast: torch.dtype | bool | None
) -> Iterator[tuple[int, int, DecodeStep, tuple[Any, ...]]]:
    """Length of the cache, how often such a step runs, the step, and its example; nothing for no ``steps``.

    ``ids`` are the prompt's, or those of the encoder's input. Raises ValueError for a model without a cache.
    """
    if not steps:
        return
    cache = _cache_after_prefill(model, ids, options, autocast)
    without = meta_model(model)
    decoder_only = not model.config.is_encoder_decoder
    first = ids.shape[1] if decoder_only else 1
    for length, count in cache_lengths(first, steps).items():
        settings = {**options, "past_key_values": grown(cache, length - first)}
        if decoder_only:
            read, mask = prompt(len(ids), length + 1)
        else:
            read, mask = prompt(*ids.shape)
            settings |= _encoded(model, ids, length + 1)
        tokens, arguments = loop_arguments(without, read, {**settings, "attention_mask": mask})
        given = {name: value for name, value in arguments.items() if isinstance(value, (Tensor, BaseModelOutput))}
        others = {name: value for name, value in arguments.items() if name not in given}
        where = places(others["past_key_values"])
        cached = tensors(where)
        fill(where, [None] * len(cached))
        yield length, count, DecodeStep(model, options, others, where), (tokens, cached, given)


def cache_lengths(first: int, steps: int) -> dict[int, int]:
    """Lengths of the cache that stand for ``steps`` of them from ``first`` on, and how many steps each counts for.

    Exact for what grows linearly. The ends' counts are those that give lengths their variance, (steps² - 1) / 12, in
    whole steps: Simpson's rule for a sum.
    """
    last = first + steps - 1
    if steps <= 3:
        return dict.fromkeys(range(first, last + 1), 1)
    ends = round(steps * (steps + 1) / (6 * (steps - 1)))
    return {first: ends, (first + last) // 2: steps - 2 * ends, last: ends}


def _cache_after_prefill(
    model: Any, ids: Tensor, options: dict[str, Any], autocast: torch.dtype | bool | None
) -> Any:
    """The cache that ``generate`` builds of the prompt, without values."""
    found: list[Any] = []
    example = ids, torch.ones_like(ids)
    trace_here(make_workload(Prefill(model, options, found.append), example=example, mode="infer", autocast=autocast))
    cache = getattr(found[-1], "past_key_values", None)
    if isinstance(cache, tuple):  # transformers 4
        kind: Any = EncoderDecoderCache if model.config.is_encoder_decoder else DynamicCache
        cache = kind.from_legacy_cache(cache)
    if cache is None or not holds_keys(cache):
        raise ValueError(f"{type(model).__name__} keeps no cache of keys and values, so its steps are not priced")
    return without_values(cache)


def _encoded(model: Any, ids: Tensor, decoded: int) -> dict[str, Any]:
    """What a decoder reads: the encoder's output, and the tokens so far."""
    states = torch.empty(*ids.shape, model.config.hidden_size, dtype=model.dtype, device="meta")
    config = model.generation_config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    tokens = torch.full((len(ids), decoded), start, dtype=torch.int64, device="cpu")
    return {"encoder_outputs": BaseModelOutput(last_hidden_state=states), "decoder_input_ids": tokens}
