"""Time the real step on copies of a model: the second opinion behind ``measure="unsure"``.

The user's model, its optimizer and every random number generator are as before afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median, quantiles
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn

from placer.decision.observed import Seen
from placer.nest import map_nest, tensors
from placer.placement import move, move_optimizer, synchronize, target
from placer.workload import Workload, loss_of, optimizer_classes, same_randomness

#: Untimed steps on each device: allocation, kernel selection, lazy loading.
WARM_UP = 3
#: Timed rounds, one step per device each; interleaved, so that a slow moment hits all devices alike.
ROUNDS = 15


def race(
    workload: Workload,
    devices: Sequence[str],
    *,
    limit_seconds: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Seen]:
    """Median step time on each device, by interleaved steps on deep copies, in about ``limit_seconds`` at most.

    The first timed round always runs to its end, so that every device has a number. Raises whatever the model raises,
    also where there is no memory for the copies.
    """
    with same_randomness(devices):
        steps = {device: step_on(workload, device) for device in devices}
        deadline = clock() + limit_seconds
        for step in steps.values():
            for _ in range(WARM_UP):
                step()
                if clock() > deadline:
                    break
        seconds: dict[str, list[float]] = {device: [] for device in devices}
        for _ in range(ROUNDS):
            for device, step in steps.items():
                start = clock()
                step()
                seconds[device].append(clock() - start)
            if clock() > deadline:
                break
    return {device: _summary(values) for device, values in seconds.items()}


def step_on(workload: Workload, device: str) -> Callable[[], None]:
    """One step as the workload describes it, on a deep copy on ``device``; returns when the device has finished."""
    there = target(device)
    given = workload.optimizer
    model, optimizer = _copied(cast(nn.Module, workload.target), None if isinstance(given, str) else given)
    model.to(there)
    if model.training != (workload.mode == "train"):
        model.train(workload.mode == "train")
    if isinstance(given, str):
        parameters = [p for p in model.parameters() if p.requires_grad]
        factory = cast(Callable[[list[nn.Parameter]], torch.optim.Optimizer], optimizer_classes()[given])
        optimizer = factory(parameters) if parameters else None
    elif optimizer is not None:
        move_optimizer(optimizer, there)
    batch = map_nest(_real, (workload.args, workload.kwargs))
    if workload.data == "device":
        batch = move(batch, there)
    elif workload.data == "pinned" and there.type != "cpu":
        batch = map_nest(lambda x: x.pin_memory(), batch)
    autocast = workload.autocast

    def step() -> None:
        args, kwargs = move(batch, there, non_blocking=workload.data == "pinned")
        context: Any = contextlib.nullcontext() if autocast is None else torch.autocast(there.type, dtype=autocast)
        if workload.mode == "infer":
            with torch.no_grad(), context:
                move(model(*args, **kwargs), torch.device("cpu"))
            synchronize(device)
            return
        with context:
            loss = loss_of(model(*args, **kwargs), workload.loss)
        if loss is not None:
            loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        synchronize(device)

    return step


def shared_function(workload: Workload) -> str | None:
    """A function that is the user's and that copies of the model would call too: a hook, or a ``forward`` put in place.

    It may reach anything, the original among it. None where there is none.
    """
    model = cast(nn.Module, workload.target)
    of_all = (sys.modules[kind.__module__] for kind in (nn.Module, torch.optim.Optimizer))
    for owner in (*model.modules(), *of_all):
        for name, value in vars(owner).items():
            for function in _called(name, value):
                while isinstance(function, partial):
                    function = function.func
                if not str(getattr(function, "__module__", "")).startswith(("torch.", "placer.")):
                    return str(getattr(function, "__qualname__", type(function).__qualname__))
    return None


def _called(name: str, value: Any) -> Sequence[Any]:
    """The functions that a step calls, of a value kept under this name; copies of a method have their own module."""
    if name == "forward":
        return [value] if isinstance(value, FunctionType) else []
    is_hooks = name.endswith("_hooks") and "state_dict" not in name and isinstance(value, dict)
    return list(value.values()) if is_hooks else []


def _copied(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    """A deep copy, the optimizer of the copied parameters; on the CPU, lest a device hold one more on its way."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers(), *tensors(dict(optimizer.state) if optimizer else {})):
        special = nn.Parameter in type(tensor).__mro__[1:]  # a class of parameters that knows how to copy itself
        if special or tensor.device.type in ("cpu", "meta"):
            continue
        host = tensor.detach().to("cpu")
        memo[id(tensor)] = nn.Parameter(host, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else host
    return copy.deepcopy((model, optimizer), memo)


def _real(leaf: Any) -> Any:
    """Meta tensors become real ones: random numbers, as zeros make some kernels faster than life; indices are 0."""
    if not isinstance(leaf, Tensor):
        return copy.deepcopy(leaf)
    if leaf.device.type != "meta":
        return leaf.detach().clone()
    if leaf.is_floating_point() or leaf.is_complex():
        return torch.randn(leaf.shape, dtype=leaf.dtype)
    return torch.zeros(leaf.shape, dtype=leaf.dtype)


def _summary(values: list[float]) -> Seen:
    if len(values) < 2:
        return Seen(values[0], values[0], values[0])
    cuts = quantiles(values, n=20, method="inclusive")
    return Seen(median(values), cuts[0], cuts[-1])
