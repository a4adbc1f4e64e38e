"""Hugging Face's ``model.generate`` as a job: a prompt, and tokens one by one, with a cache that grows.

Examples:
    >>> job = generation(model, prompt_length=64, new_tokens=128, batch=8)
    >>> print(placer.explain(job))

Prefill and decode steps run the library's own code around the model: preparing inputs, processing logits, choosing the
token, asking whether to stop. Tokens have no values in a trace, so none of them ends a text.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.generation import GenerateDecoderOnlyOutput, MaxLengthCriteria
from transformers.modeling_outputs import BaseModelOutput

import placer
from placer.integrations.loops import whole
from placer.nest import tensors
from placer.tracing import meta_model, trace_here
from placer.workload import Data, make_workload

#: What the library calls the cache: since transformers 5.24 the older name gives a warning.
_OUTPUTS = {field.name for field in dataclasses.fields(GenerateDecoderOnlyOutput)}
CACHE = "cache" if "cache" in _OUTPUTS else "past_key_values"
#: Settings of ``generate`` that ``generation`` makes itself.
_LENGTHS = frozenset({"max_new_tokens", "min_new_tokens", "max_length", "min_length", "return_dict_in_generate"})
#: The values of settings that are priced.
_PRICED = {
    "num_return_sequences": (None, 1), "cache_implementation": (None, "dynamic"), "use_cache": (None, True),
}  # fmt: skip


def generation(
    model: Any,
    prompt_length: int,
    new_tokens: int,
    *,
    batch: int = 1,
    repeats: int | None = None,
    data: Data = "host",
    autocast: torch.dtype | bool | None = None,
    **options: Any,
) -> placer.Job:
    """``model.generate(ids, max_new_tokens=new_tokens, **options)`` as a job, without running it.

    The parts are "prefill", which is the prompt's forward pass and the first token, and decode steps of one token each.
    A step takes longer the more tokens the cache holds, nearly linearly, so that three lengths stand for all: the
    first, the middle and the last one. The last one needs the most memory. No text ends early.

    Args:
        model: a model with ``generate``, of text to text, in memory or on the meta device. It stays as it is.
        prompt_length: tokens of the prompt; of an encoder's input for an encoder-decoder model.
        new_tokens: tokens to generate for each text.
        batch: texts that are generated together.
        repeats: how many calls of ``generate`` follow. None: a long run.
        data: where the prompts are, as for ``placer.choose``, and so is ``autocast``. The cache is on the device.
        options: other settings of ``generate``, such as ``do_sample=True, top_k=50``.

    Raises:
        TypeError, ValueError: a wrong argument, or a way to generate that is not priced (beams, assistants, other
            caches).
        PlacerError: the model cannot be traced.
    """
    if not (isinstance(model, nn.Module) and isinstance(model, GenerationMixin) and model.can_generate()):
        raise TypeError(f"model must be a transformers model with generate(), not {type(model).__name__}")
    if model.main_input_name != "input_ids":
        raise ValueError(f"model must read token ids; {type(model).__name__} reads {model.main_input_name}")
    steps = whole("new_tokens", new_tokens) - 1
    _check_options(model, options)
    ids, mask = prompt(whole("batch", batch), whole("prompt_length", prompt_length))
    config: Any = model.config
    first = 1 if config.is_encoder_decoder else prompt_length
    shared: dict[str, Any] = {"mode": "infer", "autocast": autocast}
    parts = [placer.Part("prefill", Prefill(model, options), batch=(ids, mask), data=data, **shared)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings: the call of generate warns of the same
        without = meta_model(model)
        cache = _cache_after_prefill(model, ids, options, autocast) if steps else None
        for length, count in cache_lengths(first, steps).items():
            step, inputs = decode_step(model, without, ids, grown(cache, length - first), length, options)
            name = f"decode, cache of {length}"
            parts.append(placer.Part(name, step, count=count, batch=inputs, data="device", **shared))
    return placer.Job(parts, repeats=repeats)


def _check_options(model: Any, options: dict[str, Any]) -> None:
    for name in options:
        if name in _LENGTHS:
            raise TypeError(f"{name} is what prompt_length and new_tokens say: leave it out")
    config = copy.deepcopy(model.generation_config)
    unknown = config.update(**options)
    if unknown:
        raise TypeError(f"not a setting of generate: {', '.join(sorted(unknown))}; inputs follow from the lengths")
    mode = str(config.get_generation_mode().value)
    if mode not in ("greedy_search", "sample"):
        raise ValueError(f"only greedy search and sampling are priced, not {mode}: leave out what asks for it")
    for name, priced in _PRICED.items():
        value = getattr(config, name, None)
        if value not in priced:
            raise ValueError(f"{name}={value!r} is not priced; accepted: {priced[-1]!r}")


def prompt(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Token ids and a mask that hides none of them, as a tokenizer gives them."""
    ids = torch.zeros(batch, length, dtype=torch.int64, device="cpu")
    return ids, torch.ones_like(ids)


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


def _cache_after_prefill(model: Any, ids: Tensor, options: dict[str, Any], autocast: torch.dtype | bool | None) -> Any:
    """The cache that ``generate`` builds of the prompt, without values. Raises ValueError for a model without one."""
    outputs: list[Any] = []
    example = ids, torch.ones_like(ids)
    trace_here(make_workload(Prefill(model, options, outputs.append), batch=example, mode="infer", autocast=autocast))
    cache = getattr(outputs[-1], CACHE, None)
    if not any(isinstance(getattr(layer, "keys", None), Tensor) for layer in getattr(_growing(cache), "layers", ())):
        raise ValueError(f"{type(model).__name__} keeps no cache of keys and values, so its steps are not priced")
    return copy.deepcopy(cache, {id(tensor): torch.empty_like(tensor, device="meta") for tensor in tensors(cache)})


def decode_step(
    model: Any, without: Any, ids: Tensor, cache: Any, length: int, options: dict[str, Any]
) -> tuple[DecodeStep, tuple[Any, ...]]:
    """The step with a ``cache`` of that length, and its example.

    ``without`` is the model without values, ``ids`` are the prompt's, or those of the encoder's input.
    """
    settings = {**options, CACHE: cache}
    if model.config.is_encoder_decoder:
        read, mask = prompt(*ids.shape)
        states = torch.empty(*ids.shape, model.config.hidden_size, dtype=model.dtype, device="meta")
        config = model.generation_config
        start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
        settings["encoder_outputs"] = BaseModelOutput(last_hidden_state=states)
        settings["decoder_input_ids"] = torch.full((len(ids), length + 1), start, dtype=torch.int64, device="cpu")
    else:
        read, mask = prompt(len(ids), length + 1)
    tokens, arguments = loop_arguments(without, read, {**settings, "attention_mask": mask})
    inputs = {name: value for name, value in arguments.items() if isinstance(value, (Tensor, Cache, BaseModelOutput))}
    others = {name: value for name, value in arguments.items() if name not in inputs}
    return DecodeStep(model, others), (tokens, inputs)


class Prefill(nn.Module):
    """``generate`` of one token, with these options. ``keep`` is called with what it returns."""

    def __init__(self, model: Any, options: dict[str, Any], keep: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self.model: Any = model
        self.options, self.keep = options, keep

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The texts with one more token."""
        settings = {"max_new_tokens": 1, "return_dict_in_generate": True, **self.options}
        with _never_stopping(self.model):
            made = self.model.generate(input_ids, attention_mask=attention_mask, **settings)
        if self.keep is not None:
            self.keep(made)
        result: Tensor = made.sequences
        return result


class DecodeStep(nn.Module):
    """One turn of the loop in ``generate``, with those of its arguments that are no tensors."""

    def __init__(self, model: Any, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.model: Any = model
        self.arguments = arguments

    def forward(self, input_ids: Tensor, inputs: dict[str, Any]) -> Tensor:
        """The texts with one more token. ``inputs``: the cache, and other tensors of the loop's arguments."""
        result: Tensor = type(self.model)._sample(self.model, input_ids, **self.arguments, **inputs)
        return result


def loop_arguments(model: Any, input_ids: Tensor, options: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The tokens and other arguments with which ``generate`` enters its loop for one more token. Nothing is computed.

    ``model`` is a copy for this alone. ``options`` hold the cache of all tokens but the last.
    """
    entered: dict[str, Any] = {}

    def enter(self: Any, input_ids: Tensor, **arguments: Any) -> Tensor:
        entered.update(arguments, input_ids=input_ids)
        return input_ids

    kind = type(model)
    model.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, "_sample": enter})
    with _never_stopping(model):
        model.generate(input_ids, max_new_tokens=1, **options)
    tokens: Tensor = entered.pop("input_ids")
    # transformers 5 compares this number with the tokens' to see that the cache holds all but the last of them.
    entered["generation_config"]._mask_length = tokens.shape[1]
    return tokens, entered


@contextlib.contextmanager
def _never_stopping(model: Any) -> Iterator[None]:
    """Stopping criteria that look at tokens do their work, and never stop."""
    usual = model._get_stopping_criteria

    def criteria(*args: Any, **kwargs: Any) -> StoppingCriteriaList:
        made = usual(*args, **kwargs)
        return StoppingCriteriaList(c if isinstance(c, MaxLengthCriteria) else _NeverMet(c) for c in made)

    vars(model)["_get_stopping_criteria"] = criteria
    try:
        yield
    finally:
        del vars(model)["_get_stopping_criteria"]


class _NeverMet(StoppingCriteria):  # type: ignore[misc]
    def __init__(self, criterion: Any) -> None:
        self.criterion = criterion
        if hasattr(criterion, "eos_token_id"):  # then the loop pads the texts that are done
            self.eos_token_id = criterion.eos_token_id

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.criterion(input_ids, scores, **kwargs)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def grown(cache: Any, tokens: int) -> Any:
    """A copy of a cache on the meta device, with so many more ``tokens``. Layers with a window keep what they keep."""
    result = copy.deepcopy(cache)
    growing = _growing(result)
    for number, layer in enumerate(growing.layers):
        if tokens and isinstance(getattr(layer, "keys", None), Tensor):
            more = [t.new_empty(*t.shape[:-2], tokens, t.shape[-1]) for t in (layer.keys, layer.values)]
            growing.update(*more, number)
    return result


def _growing(cache: Any) -> Any:
    """What grows of a cache: not what a decoder reads of its encoder."""
    return getattr(cache, "self_attention_cache", cache)
