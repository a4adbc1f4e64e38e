"""The key-value cache of Hugging Face's transformers: its tensors, and the same cache of more tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

#: Where a cache holds a tensor: a list or an object, and an index or the name of an attribute.
Place = tuple[Any, Any]


def places(cache: Any) -> list[Place]:
    """Where ``cache`` holds its tensors, in a fixed order."""
    return list(_places(cache, set()))


def _places(value: Any, seen: set[int]) -> Iterator[Place]:
    if isinstance(value, type) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        items = getattr(value, "__dict__", {}).items()
    for name, item in items:
        if isinstance(item, Tensor):
            yield value, name
        else:
            yield from _places(item, seen)


def tensors(where: Sequence[Place]) -> tuple[Tensor, ...]:
    """The tensors in these places."""
    return tuple(holder[name] if isinstance(holder, (list, dict)) else getattr(holder, name) for holder, name in where)


def fill(where: Sequence[Place], values: Sequence[Tensor | None]) -> None:
    """Put tensors, or nothing, into these places."""
    for (holder, name), value in zip(where, values, strict=True):
        if isinstance(holder, (list, dict)):
            holder[name] = value
        else:
            setattr(holder, name, value)


def without_values(cache: Any) -> Any:
    """A copy of ``cache`` on the meta device."""
    result = copy.deepcopy(cache)
    where = places(result)
    fill(where, [torch.empty_like(tensor, device="meta") for tensor in tensors(where)])
    return result


def grown(cache: Any, tokens: int) -> Any:
    """A copy of a cache on the meta device, with so many more ``tokens``. Layers with a window keep what they keep."""
    result = copy.deepcopy(cache)
    own = _growing(result)
    for number, (keys, values) in enumerate(_keys_and_values(own)):
        if tokens and isinstance(keys, Tensor):
            more = [t.new_empty(*t.shape[:-2], tokens, t.shape[-1]) for t in (keys, values)]
            own.update(*more, number)
    return result


def holds_keys(cache: Any) -> bool:
    """Whether ``cache`` holds keys and values of tokens; that of a state-space model does not."""
    return any(isinstance(keys, Tensor) for keys, _ in _keys_and_values(_growing(cache)))


def _growing(cache: Any) -> Any:
    """What grows of a cache: not what a decoder reads of its encoder."""
    return getattr(cache, "self_attention_cache", cache)


def _keys_and_values(cache: Any) -> list[tuple[Any, Any]]:
    if hasattr(cache, "layers"):
        return [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache, strict=True))  # transformers before 4.54
