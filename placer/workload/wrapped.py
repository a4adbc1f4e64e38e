"""What is around a model: ``torch.compile``, in which mode, and what spreads it over processes. Nothing is compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

#: Attributes by which the objects between a compiled callable and its backend lead on, as they were called over time.
_INNER = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
#: Modules around a model that spread it over processes, by the module of torch that defines them.
_DISTRIBUTED = ("torch.nn.parallel.distributed", "torch.distributed.")
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


def unwrap(model: Any) -> Any:
    """The module behind ``torch.compile`` and ``DistributedDataParallel``, which are no part of what is traced."""
    inner = getattr(model, "_orig_mod", None)
    if not isinstance(inner, nn.Module):
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else None
    return model if inner is None else unwrap(inner)


def spread_over_processes(model: nn.Module) -> str | None:
    """What spreads a model over processes, in words; None for one that is whole in this process."""
    for kind in {type(part) for part in model.modules()}:
        sharded = any(base.__module__.startswith("torch.distributed.fsdp") for base in kind.__mro__)
        if kind.__module__.startswith(_DISTRIBUTED) or sharded:
            return f"{kind.__name__} is wrapped for distributed training already: choose before that"
    tensors: Any = sys.modules.get("torch.distributed.tensor")
    if tensors is not None and any(isinstance(p, tensors.DTensor) for p in model.parameters()):
        return "its parameters are sharded over processes already: choose before that"
    return None


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
