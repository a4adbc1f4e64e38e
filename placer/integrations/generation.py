"""Hugging Face's ``model.generate`` as a job: a prompt, and tokens one by one, with a cache that grows.

>>> job = generation(model, prompt_length=64, new_tokens=128, batch=8)
>>> print(placer.explain(job))
"""

from __future__ import annotations

import copy
import operator
import warnings
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin

import placer
from placer.integrations.decode_steps import decode_steps, prompt
from placer.integrations.decoding import Prefill

#: Settings of ``generate`` that ``generation`` makes itself.
_OWN = frozenset({"max_new_tokens", "min_new_tokens", "max_length", "min_length", "return_dict_in_generate"})
#: Settings with the values that are priced, and what the others mean.
_PRICED = (
    ("num_return_sequences", (None, 1), "several texts of one prompt: give batch so many times"),
    ("cache_implementation", (None, "dynamic"), "only a cache that grows is"),
    ("use_cache", (None, True), "without a cache each token computes all those before it again"),
)


def generation(
    model: Any,
    prompt_length: int,
    new_tokens: int,
    *,
    batch: int = 1,
    repeats: int | None = None,
    data: str = "host",
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
        data: where the prompts are, as for ``placer.choose``. The cache is always on the device.
        autocast: as for ``placer.choose``.
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
    prompt_length, batch = _count("prompt_length", prompt_length), _count("batch", batch)
    new_tokens = _count("new_tokens", new_tokens)
    _check_options(model, options)
    ids, mask = prompt(batch, prompt_length)
    given: dict[str, Any] = {"mode": "infer", "autocast": autocast}
    parts = [placer.Part("prefill", Prefill(model, options), example=(ids, mask), data=data, **given)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings: the call of generate warns of the same
        for length, count, step, inputs in decode_steps(model, ids, new_tokens - 1, options, autocast):
            name = f"decode, cache of {length}"
            parts.append(placer.Part(name, step, count=count, example=inputs, data="device", **given))
    return placer.Job(parts, repeats=repeats)


def _check_options(model: Any, options: dict[str, Any]) -> None:
    for name in options:
        if name in _OWN:
            raise TypeError(f"{name} is what prompt_length and new_tokens say: leave it out")
    config = copy.deepcopy(model.generation_config)
    unknown = config.update(**options)
    if unknown:
        raise TypeError(f"not a setting of generate: {', '.join(sorted(unknown))}; inputs follow from the lengths")
    mode = str(config.get_generation_mode().value)
    if mode not in ("greedy_search", "sample"):
        raise ValueError(f"only greedy search and sampling are priced, not {mode}: leave out what asks for it")
    for name, priced, meaning in _PRICED:
        value = getattr(config, name, None)
        if value not in priced:
            raise ValueError(f"{name}={value!r} is not priced ({meaning}); accepted: {priced[-1]!r}")


def _count(what: str, number: Any) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} must be a whole number of at least 1, not {number!r}")
    count = operator.index(number)
    if count < 1:
        raise ValueError(f"{what} must be at least 1, not {count}")
    return count
