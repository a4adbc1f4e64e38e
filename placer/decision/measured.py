"""Real step times in the place of predicted ones, timed now, on copies."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn

from placer.decision.recorded import StepTime, corrected, record
from placer.decision.table import RealSteps, Table
from placer.errors import PlacerError, first_line
from placer.nest import map_nest
from placer.placement import is_plain, move, move_optimizer, synchronize, target
from placer.workload import Workload, loss_modules, loss_of, optimizer_classes, outputs_stay, same_randomness

#: Untimed steps on each device: allocation, kernel selection, lazy loading.
WARM_UP = 3
#: Timed rounds, one step per device each; interleaved, so that a slow moment hits all devices alike.
ROUNDS = 15
#: Seconds after which no further step is begun.
LIMIT = 10.0
_UNTIMED = "the real step was not timed"


def with_measured(table: Table, workload: Workload, measure: str) -> Table:
    """The table of a step after timing it on the devices that compete; as it was if there is nothing to settle.

    ``unsure`` times those that can turn the choice: the chosen one, and those whose intervals overlap its own. The
    same table, with a note, where that cannot be done (see ``time_steps``).
    """
    (part,) = table.parts
    competing = [name for name, prediction in part.predictions.items() if prediction.fits]
    if measure == "unsure":
        chosen = table.decide().device
        most = _counted(table, chosen, table.costs[chosen].high)
        competing = [n for n in competing if n == chosen or _counted(table, n, table.costs[n].low) <= most]
    if len(competing) < 2:
        return table
    try:
        times = time_steps(workload, table, competing)
    except PlacerError as error:
        return replace(table, notes=(*table.notes, str(error)))
    note = "step times were measured on this machine; what they are made of is predicted"
    predicted = table.predicted or table
    real = corrected(predicted.parts[0].predictions, times, table.repeats)
    timed = replace(part, predictions={**part.predictions, **real}, notes=(*part.notes, note))
    real_steps = {**table.real, **dict.fromkeys(times, RealSteps("measured"))}
    return replace(table, parts=(timed,), real=real_steps, predicted=predicted)


def _counted(table: Table, device: str, seconds: float) -> float:
    """What a choice compares of a device, if a step there took so many seconds."""
    cost = replace(table.costs[device], step_seconds=seconds)
    return table.objective.counted(table.objective.applied(cost, table.repeats))


def time_steps(workload: Workload, table: Table, devices: Sequence[str]) -> dict[str, StepTime]:
    """Real steps on ``devices`` of the table of a step, timed on copies, with the CPU threads that were priced.

    They go into the history. Raises PlacerError where the copies would run what is the user's own, or cannot run.
    """
    if getattr(workload.model, "_compiled_call_impl", None) is not None:  # what ``.compile()`` made, no copy has
        raise PlacerError(f"{_UNTIMED}: a copy would have to be compiled again")
    if (function := shared_function(workload)) is not None:
        raise PlacerError(f"{_UNTIMED}: copies of the model would call {function} too")
    if workload.draw is not None:
        workload.draw()
    (part,) = (table.predicted or table).parts
    threads = part.predictions["cpu"].threads if "cpu" in devices else torch.get_num_threads()
    try:
        with running_with(threads):
            times = race(workload, tuple(devices))
    except Exception as error:
        raise PlacerError(f"{_UNTIMED}: {type(error).__name__}: {first_line(error)}") from error
    for device, time_there in times.items():
        record(part.identity, part.predictions[device], table.profile, time_there)
    return times


def shared_function(workload: Workload) -> str | None:
    """A function that is the user's and that copies of the model would call too: a hook, or a ``forward`` put in place.

    It may reach anything, the original among it. None where there is none.
    """
    model = cast(nn.Module, workload.model)
    of_all = (sys.modules[kind.__module__] for kind in (nn.Module, torch.optim.Optimizer))
    for owner in (*model.modules(), *of_all):
        called: list[Any] = []
        for name, value in vars(owner).items():
            if name == "forward" and isinstance(value, FunctionType):  # copies of a method have their own module
                called.append(value)
            elif name.endswith("_hooks") and "state_dict" not in name and isinstance(value, dict):
                called += value.values()
        for function in called:
            while isinstance(function, partial):
                function = function.func
            if not str(getattr(function, "__module__", "")).startswith(("torch.", "placer.")):
                return str(getattr(function, "__qualname__", type(function).__qualname__))
    return None


@contextlib.contextmanager
def running_with(count: int) -> Iterator[None]:
    """The body runs with ``count`` of torch's intra-op threads, whatever follows with as many as before."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def race(workload: Workload, devices: Sequence[str]) -> dict[str, StepTime]:
    """Median step time on each device, by interleaved steps on deep copies, in about ``LIMIT`` seconds at most.

    The first timed round always runs to its end, so that every device has a number. Raises whatever the model raises,
    also where there is no memory for the copies.
    """
    clock = time.perf_counter
    with same_randomness(devices):
        steps = {device: step_on(workload, device) for device in devices}
        deadline = clock() + LIMIT
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
    return {device: StepTime.of(values) for device, values in seconds.items()}


def step_on(workload: Workload, device: str) -> Callable[[], None]:
    """One step as the workload describes it, on a deep copy on ``device``; returns when the device has finished."""
    there = target(device)
    model, optimizer, loss = _copied(workload)
    model.to(there)
    for module in loss_modules(loss):
        module.to(there)
    if model.training != (workload.mode == "train"):
        model.train(workload.mode == "train")
    if optimizer is not None:
        move_optimizer(optimizer)
    elif isinstance(workload.optimizer, str):
        parameters = [p for p in model.parameters() if p.requires_grad]
        factory = cast(Callable[[list[nn.Parameter]], torch.optim.Optimizer], optimizer_classes()[workload.optimizer])
        optimizer = factory(parameters) if parameters else None
    batch = map_nest(_real, workload.batch)
    if workload.data == "device":
        batch = move(batch, there)
    elif workload.data == "pinned" and there.type != "cpu":
        batch = map_nest(_pinned, batch)
    autocast, stays = workload.autocast, outputs_stay(workload.data, workload.outputs)

    def step() -> None:
        args, kwargs, compared = move(batch, there, non_blocking=workload.data == "pinned")
        context: Any = contextlib.nullcontext() if autocast is None else torch.autocast(there.type, dtype=autocast)
        if workload.mode == "infer":
            with torch.no_grad(), context:
                output = model(*args, **kwargs)
                if not stays:
                    move(output, torch.device("cpu"))
            synchronize(device)
            return
        with context:
            value = loss_of(model(*args, **kwargs), loss, compared)
        if value is not None:
            value.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        synchronize(device)

    return step


def _copied(workload: Workload) -> tuple[nn.Module, torch.optim.Optimizer | None, Callable[..., Any] | None]:
    """Deep copies: the model, the optimizer of its copied parameters, and a loss with weights; another one as it is."""
    optimizer = workload.optimizer if isinstance(workload.optimizer, torch.optim.Optimizer) else None
    weighted = workload.loss if loss_modules(workload.loss) else None
    model, optimizer, weighted = copy.deepcopy((cast(nn.Module, workload.model), optimizer, weighted))
    return model, optimizer, workload.loss if weighted is None else weighted


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if isinstance(leaf, Tensor) and is_plain(leaf) else leaf


def _real(leaf: Any) -> Any:
    """Meta tensors become real ones: random numbers, as zeros make some kernels faster than life; indices are 0."""
    if not isinstance(leaf, Tensor):
        return copy.deepcopy(leaf)
    if leaf.device.type != "meta":
        return leaf.detach().clone()
    if leaf.is_floating_point() or leaf.is_complex():
        return torch.randn(leaf.shape, dtype=leaf.dtype)
    return torch.zeros(leaf.shape, dtype=leaf.dtype)
