"""What the user wants to run: the arguments of ``choose`` and ``explain``, checked once and frozen.

A wrong argument raises ``ValueError`` or ``TypeError`` here, before anything is traced, priced or moved, and says what
was given and what is accepted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from placer.nest import is_namedtuple, tensors
from placer.workload.signature import callable_signature, optimizer_signature, signature

Mode = Literal["train", "infer"]
Data = Literal["host", "pinned", "device"]

MODES: tuple[Mode, ...] = ("train", "infer")
DATA: tuple[Data, ...] = ("host", "pinned", "device")

#: More steps than any run has; a float still tells them apart.
MOST_STEPS = 2**53
#: Optimizers a name cannot stand for: LBFGS needs a closure, SparseAdam sparse gradients. Their instances are fine.
_UNNAMED = {"Optimizer", "LBFGS", "SparseAdam"}


@dataclass(frozen=True, eq=False)
class Workload:
    """One step of somebody's model, and how many such steps will follow.

    ``args`` and ``kwargs`` hold the example input: the user's own tensors, or meta float32 tensors made from
    ``batch_shape``. ``optimizer`` is a lower-case name or an instance in train mode, None in infer mode and for a step
    function that was given none (it runs its own). ``modules`` are what a placement moves. Whether a step function
    trains shows when it is traced: ``Trace.mode`` says so, ``mode`` is a guess until then. ``draw`` gives the model the
    values it was built without, for the case that a step has to run (see ``placer/late_draws.py``).
    """

    target: Callable[..., Any]
    modules: tuple[nn.Module, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    mode: Mode = "train"
    loss: Callable[..., Any] | None = None
    optimizer: str | torch.optim.Optimizer | None = None
    steps: int | None = None
    data: Data = "host"
    autocast: torch.dtype | None = None
    is_step_function: bool = False
    draw: Callable[[], None] | None = None

    @property
    def optimizer_name(self) -> str | None:
        """Lower-case name of the optimizer, None when there is none."""
        if self.optimizer is None or isinstance(self.optimizer, str):
            return self.optimizer
        return type(self.optimizer).__name__.lower()

    @cached_property
    def signature(self) -> Hashable:
        """Equal for workloads that cost the same on equal models: all but the model and the values of tensors."""
        return (
            self.mode,
            self.data,
            self.autocast,
            self.steps,
            callable_signature(self.loss),
            optimizer_signature(self.optimizer),
            signature(self.args),
            signature(self.kwargs),
        )


def make_workload(
    model: Callable[..., Any],
    batch_shape: Any = None,
    *,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
) -> Workload:
    """Check the arguments shared by ``choose`` and ``explain`` and freeze them.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument of the right kind with a value that is not accepted.
    """
    if isinstance(model, type):
        raise TypeError(f"model must be an instance, not the class {model.__name__}: pass {model.__name__}(...)")
    if not callable(model):
        raise TypeError(f"model must be an nn.Module or a callable that performs one step, not {_kind(model)}")
    is_step_function = not isinstance(model, nn.Module)
    checked_mode = check_mode(mode) if mode is not None else _default_mode(model)
    args, kwargs = _inputs(batch_shape, example, is_step_function)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss must be a callable on the model's output, or None, not {_kind(loss)}")
    if loss is not None and is_step_function:
        raise ValueError("loss is for a model; a step function computes its own loss: leave loss out")
    return Workload(
        target=model,
        modules=_modules(model, modules),
        args=args,
        kwargs=kwargs,
        mode=checked_mode,
        loss=loss if checked_mode == "train" else None,
        optimizer=_optimizer(optimizer, checked_mode, is_step_function),
        steps=check_steps(steps),
        data=check_data(data),
        autocast=_autocast(autocast),
        is_step_function=is_step_function,
    )


@functools.cache
def optimizer_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """The optimizers a name can stand for: lower-case name to class, from the installed ``torch.optim``."""
    return {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name not in _UNNAMED
    }


def check_mode(mode: object) -> Mode:
    """``mode`` itself, or ValueError."""
    if mode not in MODES:
        raise ValueError(f"mode must be 'train', 'infer' or None (read model.training), not {mode!r}")
    return mode


def check_data(data: object) -> Data:
    """``data`` itself, or ValueError."""
    if data not in DATA:
        raise ValueError(f"data must be 'host', 'pinned' or 'device', not {data!r}")
    return data


def check_steps(steps: object) -> int | None:
    """``steps`` as an int of at least 1, or None."""
    if steps is None:
        return None
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise TypeError(f"steps must be a whole number of at least 1, or None for a long run, not {steps!r}")
    count = operator.index(cast(Any, steps))
    if count < 1:
        raise ValueError(f"steps must be at least 1, or None for a long run, not {count}")
    if count > MOST_STEPS:
        raise ValueError(f"steps must be at most {MOST_STEPS}, or None for a long run")
    return count


def _default_mode(model: Callable[..., Any]) -> Mode:
    """A model says itself; a step function trains unless told otherwise."""
    return "train" if not isinstance(model, nn.Module) or model.training else "infer"


def _inputs(batch_shape: Any, example: Any, is_step_function: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if batch_shape is not None and example is not None:
        raise ValueError("give batch_shape or example, not both: an example already says its shapes and dtypes")
    if batch_shape is not None:
        return tuple(torch.empty(shape, dtype=torch.float32, device="meta") for shape in read_shapes(batch_shape)), {}
    if example is None:
        if is_step_function:
            return (), {}
        raise ValueError("the input is missing: give batch_shape, like (32, 84), or example, a nest of tensors")
    if next(tensors(example), None) is None:
        raise TypeError(f"example must be a tensor or a nest of tensors; no tensor was found in {_kind(example)}")
    if isinstance(example, tuple) and not is_namedtuple(example):
        return example, {}
    if isinstance(example, Mapping) and all(isinstance(key, str) for key in example):
        return (), dict(example)
    return (example,), {}


def read_shapes(batch_shape: Any) -> tuple[tuple[int, ...], ...]:
    """One shape, or a sequence of shapes, as a tuple of shapes. A size of 0 is allowed; an inner ``()`` is a scalar."""
    if isinstance(batch_shape, (str, bytes, Tensor)) or not isinstance(batch_shape, Sequence):
        raise TypeError(f"batch_shape must be a shape like (32, 84) or a sequence of shapes, not {batch_shape!r}")
    if len(batch_shape) == 0:
        raise ValueError("batch_shape is empty: give a shape like (32, 84) or a sequence of shapes")
    nested = [isinstance(item, Sequence) and not isinstance(item, (str, bytes)) for item in batch_shape]
    if all(nested):
        return tuple(tuple(_size(n, batch_shape) for n in shape) for shape in batch_shape)
    if any(nested):
        raise TypeError(f"batch_shape mixes sizes and shapes: {batch_shape!r}; give one shape or a sequence of shapes")
    return (tuple(_size(n, batch_shape) for n in batch_shape),)


def _size(n: Any, batch_shape: Any) -> int:
    if type(n) is not int:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"batch_shape must hold whole numbers, not {n!r} (in {batch_shape!r})")
        n = operator.index(n)
    if n < 0:
        raise ValueError(f"batch_shape must hold sizes of 0 or more, not {n} (in {batch_shape!r})")
    return int(n)


def _modules(model: Callable[..., Any], modules: Any) -> tuple[nn.Module, ...]:
    if isinstance(model, nn.Module):
        if modules is not None:
            raise ValueError("modules= is for a step function, to say what moves; an nn.Module moves itself")
        return (model,)
    if modules is None:
        owner = getattr(model, "__self__", None)  # a bound method of a module: the module is what moves
        return (owner,) if isinstance(owner, nn.Module) else ()
    if isinstance(modules, nn.Module):
        return (modules,)
    if isinstance(modules, (str, bytes)) or not isinstance(modules, Iterable):
        raise TypeError(f"modules must be an nn.Module or several of them, not {_kind(modules)}")
    found = tuple(modules)
    for module in found:
        if not isinstance(module, nn.Module):
            raise TypeError(f"modules must hold nn.Module objects, not {_kind(module)}")
    return found


def _optimizer(optimizer: Any, mode: Mode, is_step_function: bool) -> str | torch.optim.Optimizer | None:
    """Checked in both modes; inference has none, whatever was given (``choose`` still moves an instance's state)."""
    if isinstance(optimizer, type):
        raise TypeError(f"optimizer must be an instance or a name, not the class {optimizer.__name__}")
    if isinstance(optimizer, str):
        if is_step_function:
            raise ValueError("a step function runs its own optimizer: give that instance (its state moves too) or None")
        names = optimizer_classes()
        if optimizer.lower() not in names:
            raise ValueError(f"unknown optimizer {optimizer!r}: give an instance or one of {', '.join(sorted(names))}")
        optimizer = optimizer.lower()
    elif optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, a name or None, not {_kind(optimizer)}")
    if mode == "infer":
        return None
    if optimizer is None and not is_step_function:
        return "adam"
    return cast("str | torch.optim.Optimizer | None", optimizer)


def _autocast(autocast: Any) -> torch.dtype | None:
    if autocast is None or autocast is False:
        return None
    if autocast is True:
        return torch.bfloat16
    if autocast in (torch.float16, torch.bfloat16):
        return cast(torch.dtype, autocast)
    accepted = "None, True (bfloat16), torch.bfloat16 or torch.float16"
    if isinstance(autocast, torch.dtype):
        raise ValueError(f"autocast must be {accepted}, not {autocast}")
    raise TypeError(f"autocast must be {accepted}, not {autocast!r}")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def describe_workload(workload: Workload) -> dict[str, Any]:
    """A workload as plain values, for explanations and the history."""
    return {
        "target": _target_name(workload.target),
        "mode": workload.mode,
        "inputs": describe_inputs(workload),
        "optimizer": workload.optimizer_name,
        "loss": None if workload.loss is None else _target_name(workload.loss),
        "steps": workload.steps,
        "data": workload.data,
        "autocast": None if workload.autocast is None else str(workload.autocast).removeprefix("torch."),
        "parameters": sum(p.numel() for module in workload.modules for p in module.parameters()),
    }


def describe_inputs(workload: Workload) -> list[str]:
    """Shape and dtype of every input."""
    return [_spec(tensor) for tensor in tensors((workload.args, workload.kwargs))]


def _spec(tensor: Tensor) -> str:
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def _target_name(target: object) -> str:
    if hasattr(target, "__name__"):
        return str(target.__name__)
    return type(target).__name__
