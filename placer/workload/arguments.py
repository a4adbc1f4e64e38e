"""Checks the arguments of ``choose`` and ``explain``, and makes a ``Workload`` of those that say what to run.

A wrong argument raises ``ValueError`` or ``TypeError`` here, before anything is traced, priced or moved. The message
says what was given and what is accepted.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from placer import machine
from placer.nest import is_namedtuple, tensors
from placer.workload.workload import Data, Mode, Outputs, Workload

#: More steps than any run has; a float still tells them apart.
MOST_STEPS = 2**53
#: Optimizers a name cannot stand for: LBFGS needs a closure, SparseAdam sparse gradients. Their instances are fine.
_UNNAMED = {"Optimizer", "LBFGS", "SparseAdam"}
#: Losses that compare with the index of a class: one for each row of an output, where classes are the second size.
_OF_CLASSES = (nn.functional.cross_entropy, nn.functional.nll_loss, nn.functional.multi_margin_loss)
_OF_CLASSES_TOO = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)
_SHAPES = "a shape like (32, 84), a sequence of shapes, or a nest of tensors"


def make_workload(
    model: Callable[..., Any],
    batch: Any = None,
    *,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    outputs: str | None = None,
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
) -> Workload:
    """Check the arguments shared by ``choose`` and ``explain`` and freeze them.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: an argument of the right kind with a value that is not accepted.
    """
    for name, value in (("model", model), ("loss", loss), ("optimizer", optimizer)):
        if isinstance(value, type):
            raise TypeError(f"{name} must be an instance, not the class {value.__name__}: pass {value.__name__}(...)")
    if not callable(model):
        raise TypeError(f"model must be an nn.Module or a callable that performs one step, not {_kind(model)}")
    is_step_function = not isinstance(model, nn.Module)
    if mode is None:
        # A model says whether it trains (frozen TorchScript has no flag); a step function trains.
        step_mode: Mode = "train" if is_step_function or getattr(model, "training", False) else "infer"
    else:
        step_mode = check_choice("mode", mode, get_args(Mode))
    args, kwargs = make_inputs(batch, model)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss must be a callable on the output, or on output and target, or None, not {_kind(loss)}")
    if loss is not None and is_step_function:
        raise ValueError("loss is for a model; a step function computes its own loss: leave loss out")
    compared = make_target(target, loss) if step_mode == "train" else None
    return Workload(
        model=model,
        modules=_modules(model, modules),
        args=args,
        kwargs=kwargs,
        mode=step_mode,
        mode_given=mode is not None,
        loss=loss if step_mode == "train" else None,
        loss_modules=loss_modules(loss),
        loss_target=compared,
        optimizer=_optimizer(optimizer, step_mode, is_step_function),
        steps=check_count("steps", steps),
        data=check_choice("data", data, get_args(Data)),
        outputs=None if outputs is None else check_choice("outputs", outputs, get_args(Outputs)),
        autocast=_autocast(autocast),
        is_step_function=is_step_function,
    )


# --- what a step is given ---------------------------------------------------------------------------------------------


def make_inputs(batch: Any, model: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of one step of ``model``: float32 inputs of the shapes in ``batch``, or itself.

    A mapping is treated as keyword arguments, unless only the mapping itself is what the model takes.
    """
    if batch is None or (isinstance(batch, (tuple, list, Mapping)) and not batch):
        if not isinstance(model, nn.Module) or takes(model, ()):
            return (), {}
        raise ValueError("the batch is missing: give a shape, like (32, 84), several shapes, or a real batch")
    shaped = _of_shapes(batch, "batch")
    if shaped is not None:
        return shaped, {}
    if isinstance(batch, tuple) and not is_namedtuple(batch):
        return batch, {}
    if isinstance(batch, Mapping) and all(isinstance(key, str) for key in batch):
        by_name = dict(batch)
        if takes(model, (), by_name) or not takes(model, (batch,)):
            return (), by_name
    return (batch,), {}


def of_classes(loss: Callable[..., Any]) -> bool:
    """Whether a loss of torch compares with the indices of classes."""
    return loss in _OF_CLASSES or isinstance(loss, _OF_CLASSES_TOO)


def make_target(target: Any, loss: Callable[..., Any] | None) -> Any:
    """What ``loss`` takes beside the output: float32 tensors of the shapes in ``target``, or itself.

    Of torch's losses of classes, a shape of one size is that of their indices, int64. Raises ValueError where the two
    do not go together.
    """
    if target is None:
        if loss is not None and takes(loss, (None, None)) and not takes(loss, (None,)):
            raise ValueError("loss takes an output and a target: give target=, a shape like (32, 1) or a real one")
        return None
    if loss is None:
        raise ValueError("target is what a loss compares the output with: give loss= too")
    if takes(loss, (None,)) and not takes(loss, (None, None)):
        raise ValueError("loss takes no target beside the output: leave target out, or give a loss of two arguments")
    made = _of_shapes(target, "target")
    if made is None:
        return target
    if len(made) == 1 and made[0].dim() == 1 and of_classes(loss):
        return made[0].to(torch.int64)
    return made[0] if len(made) == 1 else made


def _of_shapes(value: Any, name: str) -> tuple[Tensor, ...] | None:
    """float32 tensors without values of one shape, or of several; None where tensors are given themselves.

    ``name`` is the argument's. Raises ValueError or TypeError for anything else.
    """
    try:
        shapes = read_shapes(value, name)
    except TypeError:
        if next(tensors(value), None) is None:
            raise
        return None
    try:
        return tuple([torch.empty(shape, dtype=torch.float32, device="meta") for shape in shapes])
    except (RuntimeError, TypeError) as error:  # a TypeError: a size is no integer of 64 bits
        raise ValueError(f"{name} {value!r} is larger than any tensor can be") from error


def takes(called: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether the signature of a model, a step or a loss allows these arguments, as far as it has one."""
    try:
        inspect.signature(called.forward if isinstance(called, nn.Module) else called).bind(*args, **(kwargs or {}))
    except (TypeError, ValueError):
        return False
    return True


def read_shapes(value: Any, name: str = "batch") -> list[tuple[int, ...]]:
    """One shape, or a sequence of shapes, as a list of shapes. A size of 0 is allowed; an inner ``()`` is a scalar."""
    if not _is_sequence(value):
        raise TypeError(f"{name} must be {_SHAPES}, not {_shown(value)}")
    if len(value) == 0:
        raise ValueError(f"{name} is empty: give {_SHAPES}")
    nested = [_is_sequence(item) for item in value]
    if any(nested) and not all(nested):
        raise TypeError(f"{name} mixes sizes and shapes: {value!r}; give {_SHAPES}")
    shapes = []
    for shape in value if all(nested) else [value]:
        sizes = [_size(size, name) for size in shape]
        shapes.append(tuple(sizes))
    return shapes


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _size(size: Any, name: str) -> int:
    # Arrays have an ``__index__`` too.
    if isinstance(size, (bool, Tensor)) or not hasattr(size, "__index__") or getattr(size, "ndim", 0) != 0:
        raise TypeError(f"{name} must hold tensors or whole numbers, not {_shown(size)}: give {_SHAPES}")
    if operator.index(size) < 0:
        raise ValueError(f"{name} must hold sizes of 0 or more, not {size}")
    return operator.index(size)


def _shown(value: object) -> str:
    """What an error message says of a value that is no shape, and how to get tensors."""
    if isinstance(value, (str, bytes, int, float, type(None))):
        return repr(value)
    if hasattr(value, "__array__"):
        return f"{_kind(value)}; torch.from_numpy makes tensors of arrays"
    if isinstance(value, (DataLoader, Dataset)):
        return f"{_kind(value)}; next(iter(loader)) is a batch of a DataLoader"
    return _kind(value)


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


# --- devices, and what the environment asks for -----------------------------------------------------------------------


def check_devices(devices: Any, rank_device: str | None = None) -> tuple[str, ...] | None:
    """Device names as they are spelled in profiles, duplicates dropped. They need not exist on this machine.

    ``rank_device`` is what a kind of device without a number stands for, where not the first one: see ``device_name``.
    """
    if devices is None:
        return None
    if isinstance(devices, (str, torch.device)):
        devices = (devices,)
    if not isinstance(devices, Iterable):
        raise TypeError(f"devices must be device names like ['cpu', 'cuda'], or None for all, not {devices!r}")
    names = tuple(dict.fromkeys(device_name(device, rank_device) for device in devices))
    if not names:
        raise ValueError("devices is empty: name at least one device, or give None for all of this machine")
    return names


def device_name(device: Any, rank_device: str | None = None) -> str:
    """``"cuda:0"`` and ``torch.device("cuda")`` -> ``"cuda"``; the latter -> ``rank_device``, if of its kind."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"a device is a name like 'cpu' or 'cuda', or a torch.device, not {device!r}")
    try:
        torch.device(device)
        if rank_device is not None and str(device) == machine.split_device(rank_device)[0]:
            return rank_device
        return machine.normal_device(str(device))
    except (RuntimeError, ValueError):
        raise ValueError(f"{str(device)!r} is not a device; accepted are names like 'cpu', 'cuda', 'mps'") from None


def check_available(names: Iterable[str], argument: str = "devices") -> None:
    """ValueError for a device this machine does not have."""
    available = machine.available_devices()
    for name in names:
        if name not in available:
            raise ValueError(f"{argument}: {name!r} is not on this machine; accepted: {', '.join(available)}")


def check_devices_here(devices: Any, rank_device: str | None) -> tuple[str, ...] | None:
    """The devices of this machine to choose from; None: all. Raises ValueError or TypeError.

    ``rank_device`` is the accelerator of this rank of a distributed run: beside the CPU it is all there is for it.
    """
    names = check_devices(devices, rank_device)
    if names is not None:
        check_available(names)
    return names if names is not None or rank_device is None else ("cpu", rank_device)


def override(rank_device: str | None = None) -> str | None:
    """The device in ``PLACER_DEVICE``, None when it is not set; ``rank_device`` as for ``device_name``.

    Raises ValueError for one that is not here.
    """
    value = os.environ.get("PLACER_DEVICE", "").strip()
    if not value:
        return None
    try:
        name = device_name(value, rank_device)
    except ValueError as error:
        raise ValueError(f"PLACER_DEVICE: {error}") from None
    check_available((name,), "PLACER_DEVICE")
    return name


def strict() -> bool:
    """Whether ``PLACER_STRICT`` asks for errors instead of fallbacks."""
    return os.environ.get("PLACER_STRICT", "").strip().lower() not in ("", "0", "false", "no", "off")


# --- the other arguments of a step ------------------------------------------------------------------------------------


def check_choice(name: str, value: Any, accepted: tuple[str, ...]) -> Any:
    """One of a few words, or ValueError."""
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{name} must be {' or '.join(map(repr, accepted))}, not {value!r}")
    return value


@functools.cache
def optimizer_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """The optimizers a name can stand for: lower-case name to class, from the installed ``torch.optim``."""
    return {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name not in _UNNAMED
    }


def check_count(name: str, count: Any) -> int | None:
    """``steps``, or the ``repeats`` of a job, as an int of at least 1, or None."""
    if count is None:
        return None
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"{name} must be a whole number of at least 1, or None for a long run, not {count!r}")
    whole = operator.index(count)
    if whole < 1:
        raise ValueError(f"{name} must be at least 1, or None for a long run, not {whole}")
    if whole > MOST_STEPS:
        raise ValueError(f"{name} must be at most {MOST_STEPS}, or None for a long run")
    return whole


def _modules(model: Callable[..., Any], modules: Any) -> tuple[nn.Module, ...]:
    if isinstance(model, nn.Module):
        if modules is not None:
            raise ValueError("modules= is for a step function, to say what moves; an nn.Module moves itself")
        return (model,)
    if modules is None:
        owner = getattr(model, "__self__", None)  # a bound method of a module: the module is what moves
        return (owner,) if isinstance(owner, nn.Module) else ()
    several = tuple(modules) if isinstance(modules, Iterable) and not isinstance(modules, nn.Module) else (modules,)
    for module in several:
        if not isinstance(module, nn.Module):
            raise TypeError(f"modules must be an nn.Module or several of them, not {_kind(module)}")
    return several


def _optimizer(
    optimizer: str | torch.optim.Optimizer | None, mode: Mode, is_step_function: bool
) -> str | torch.optim.Optimizer | None:
    """Check in both modes; inference has no optimizer (``choose`` still moves the state of a given instance)."""
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
    return optimizer


def _autocast(autocast: torch.dtype | bool | None) -> torch.dtype | None:
    if autocast is None or isinstance(autocast, bool):
        return torch.bfloat16 if autocast else None
    if autocast in (torch.float16, torch.bfloat16):
        return autocast
    error = ValueError if isinstance(autocast, torch.dtype) else TypeError
    raise error(f"autocast must be None, True (bfloat16), torch.bfloat16 or torch.float16, not {autocast!r}")


def loss_modules(loss: Any) -> tuple[nn.Module, ...]:
    """The modules with parameters or buffers in a loss: itself, that of a bound method, those of a partial function."""
    if isinstance(loss, partial):
        parts = (loss.func, *loss.args, *loss.keywords.values())
        return tuple(module for part in parts for module in loss_modules(part))
    owner = loss.__self__ if isinstance(loss, MethodType) else loss
    if not isinstance(owner, nn.Module) or not (*owner.parameters(), *owner.buffers()):
        return ()
    return (owner,)
