"""Checks the arguments of ``choose`` and ``explain`` that say what to run, and makes a ``Workload`` of them.

A wrong argument raises ``ValueError`` or ``TypeError`` here, before anything is traced, priced or moved. The message
says what was given and what is accepted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn

from placer.workload.input_arguments import kind_of, make_inputs
from placer.workload.workload import Data, Mode, Workload

MODES: tuple[Mode, ...] = ("train", "infer")
DATA: tuple[Data, ...] = ("host", "pinned", "device")
#: More steps than any run has; a float still tells them apart.
MOST_STEPS = 2**53
#: Optimizers a name cannot stand for: LBFGS needs a closure, SparseAdam sparse gradients. Their instances are fine.
_UNNAMED = {"Optimizer", "LBFGS", "SparseAdam"}


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
        raise TypeError(f"model must be an nn.Module or a callable that performs one step, not {kind_of(model)}")
    is_step_function = not isinstance(model, nn.Module)
    checked_mode = check_mode(mode) if mode is not None else _default_mode(model)
    args, kwargs = make_inputs(batch_shape, example, model)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss must be a callable on the model's output, or None, not {kind_of(loss)}")
    if loss is not None and is_step_function:
        raise ValueError("loss is for a model; a step function computes its own loss: leave loss out")
    return Workload(
        target=model,
        modules=_modules(model, modules),
        args=args,
        kwargs=kwargs,
        mode=checked_mode,
        mode_given=mode is not None,
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
    """The mode of a model is its ``training`` flag (frozen TorchScript has none); a step function trains."""
    return "train" if not isinstance(model, nn.Module) or getattr(model, "training", False) else "infer"


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
        raise TypeError(f"modules must be an nn.Module or several of them, not {kind_of(modules)}")
    found = tuple(modules)
    for module in found:
        if not isinstance(module, nn.Module):
            raise TypeError(f"modules must hold nn.Module objects, not {kind_of(module)}")
    return found


def _optimizer(optimizer: Any, mode: Mode, is_step_function: bool) -> str | torch.optim.Optimizer | None:
    """Check in both modes; inference has no optimizer (``choose`` still moves the state of a given instance)."""
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
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, a name or None, not {kind_of(optimizer)}")
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
