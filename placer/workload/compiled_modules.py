"""Tells whether ``torch.compile`` was asked for, and in which mode. Nothing is compiled, no compiler is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

#: Attributes by which the objects between a compiled callable and its backend lead on, as they were called over time.
_INNER = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
#: No chain of wrappers is longer.
_DEEPEST = 8


def compiled_mode(target: Callable[..., Any]) -> str | None:
    """The mode that ``torch.compile`` was given for ``target``, a module or a function; None where it was not called.

    ``"default"``, ``"reduce-overhead"``, ``"max-autotune"`` or ``"max-autotune-no-cudagraphs"``. Options that select
    CUDA graphs or tuning count as their mode. Of another backend than inductor it is ``"backend <name>"``.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    if isinstance(target, nn.Module):
        context = getattr(target, "dynamo_ctx", None)
        wrapped = target._compiled_call_impl if context is None else None
        start = None if context is None else getattr(context, "callback", None)
    else:
        wrapped, start = target, None
    if wrapped is not None:
        start = next(_contexts(wrapped), None)
    return None if start is None else _mode(start)


def compiled_inside(model: nn.Module) -> list[str]:
    """Paths of the modules inside ``model``, itself excluded, that were compiled on their own."""
    if "torch._dynamo" not in sys.modules:
        return []
    return [path for path, module in model.named_modules() if path and compiled_mode(module) is not None]


def _contexts(function: Any) -> Iterator[Any]:
    """What a wrapper made by ``torch.compile`` hands frames to: it is among the values that the wrapper closes over."""
    function = getattr(function, "__func__", function)
    if not hasattr(function, "_torchdynamo_orig_callable"):
        return
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not bound
            continue
        if type(value).__name__ == "CatchErrorsWrapper":
            yield value


def _mode(callback: Any) -> str | None:
    """The mode of the backend at the end of a chain of wrappers."""
    found = callback
    for _ in range(_DEEPEST):
        kind = type(found).__name__
        if kind == "_TorchCompileInductorWrapper":
            return _of_options(found.config)
        if kind == "_TorchCompileWrapper":
            return f"backend {getattr(found, 'compiler_name', '')}".rstrip()
        inner = next((value for name in _INNER if (value := getattr(found, name, None)) is not None), None)
        if inner is None:
            break
        found = inner
    return f"backend {getattr(found, '__name__', type(found).__name__)}"


def _of_options(options: Any) -> str:
    graphs, tuned = bool(options.get("triton.cudagraphs")), bool(options.get("max_autotune"))
    if tuned:
        return "max-autotune" if graphs else "max-autotune-no-cudagraphs"
    return "reduce-overhead" if graphs else "default"
