"""Real step times in the place of predicted ones: timed now on copies, or seen in earlier runs of the same step."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median, quantiles
from types import FunctionType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from placer import machine
from placer.decision import history
from placer.decision.comparison import Table
from placer.decision.objective import JOB
from placer.decision.threads import running_with
from placer.errors import first_line
from placer.nest import map_nest, tensors
from placer.placement import move, move_optimizer, synchronize, target
from placer.pricing import NOT_PREDICTED, Prediction
from placer.workload import Workload, loss_of, optimizer_classes, same_randomness

#: Fewer timed steps than this say too little.
LEAST_STEPS = 20
#: Another run differs from the one that was seen by at least this factor, either way, however even its steps were.
LEAST_SPREAD = 1.1


class Seen(NamedTuple):
    """Seconds of real steps: median, and what 90 % of them lay between."""

    step_seconds: float
    low: float
    high: float


def record(entry: dict[str, Any]) -> None:
    """Step times into the history. Never raises."""
    history.record({"kind": "steps", **entry, "hardware": hardware(str(entry.get("device")))})


def hardware(device: str) -> str:
    """What a device's name stands for on this machine now: the same name may be another GPU after a change."""
    if device == "cpu":
        return machine.cpu_model()
    facts = next((f for f in machine.describe_accelerators() if f.get("device") == device), {})
    return f"{facts.get('name')}, {facts.get('memory_bytes')} bytes"


def lookup(key: str, predictions: Mapping[str, Prediction]) -> dict[str, Seen]:
    """The newest usable step times of a workload, by device; those on the CPU only for the predicted threads."""
    found: dict[str, Seen] = {}
    for entry in _entries(key):
        device = entry.get("device")
        if not isinstance(device, str) or device in found or device not in predictions:
            continue
        if device == "cpu" and entry.get("threads") != predictions[device].threads:
            continue
        if entry.get("hardware") != hardware(device):
            continue
        seen = _seen(entry)
        if seen is not None:
            found[device] = seen
    return found


def corrected(
    predictions: Mapping[str, Prediction], seen: Mapping[str, Seen], steps: int | None
) -> dict[str, Prediction]:
    """The predictions with real step times instead of predicted ones; what was missed is a component of its own."""
    result = dict(predictions)
    for name, real in seen.items():
        old = predictions[name]
        total = None if steps is None else old.one_time_seconds + steps * real.step_seconds
        missed = real.step_seconds - sum(old.components.values())
        result[name] = replace(
            old,
            step_seconds=real.step_seconds,
            low=real.low,
            high=real.high,
            total_seconds=total,
            components={**old.components, NOT_PREDICTED: missed},
        )
    return result


def _entries(key: str) -> Iterator[dict[str, Any]]:
    """The history's entries of one workload, newest first."""
    for line in reversed(history.lines_with(f'"workload":"{key}"')):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("kind") == "steps":
            yield entry


def _seen(entry: Mapping[str, Any]) -> Seen | None:
    """What an entry says; None for too few steps, and for values that no clock gives."""
    values: list[Any] = [entry.get(name) for name in ("step_seconds", "low", "high")]
    count = entry.get("steps_timed")
    if not isinstance(count, int) or count < LEAST_STEPS:
        return None
    if not all(type(v) in (int, float) and math.isfinite(v) and v > 0.0 for v in values):
        return None
    middle, low, high = (float(v) for v in values)
    if not low <= middle <= high:
        return None
    return Seen(middle, min(low, middle / LEAST_SPREAD), max(high, middle * LEAST_SPREAD))


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


def with_race(table: Table, workload: Workload, measure: str) -> Table:
    """The table of a step after timing it on the devices that compete; as it was if there is nothing to settle.

    The same, with a note, where the copies that are timed would run what is the user's own, or cannot run.
    """
    (part,) = table.parts
    competing = {name: p for name, p in part.predictions.items() if p.fits}
    if len(competing) < 2 or (measure == "unsure" and not _overlap(competing, table.decide().device)):
        return table
    if getattr(workload.target, "_compiled_call_impl", None) is not None:  # what ``.compile()`` made, no copy has
        return _untimed(table, "a copy would have to be compiled again")
    if (function := shared_function(workload)) is not None:
        return _untimed(table, f"copies of the model would call {function} too")
    threads = part.predictions["cpu"].threads if "cpu" in part.predictions else torch.get_num_threads()
    try:
        with running_with(threads):
            results = race(workload, tuple(competing))
    except Exception as error:  # noqa: BLE001 - the user's code, on copies and on devices it was not written for
        return _untimed(table, f"{type(error).__name__}: {first_line(error)}")
    note = "step times were measured on this machine; what they are made of is predicted"
    raced = replace(part, predictions=corrected(part.predictions, results, table.repeats), notes=(*part.notes, note))
    return replace(table.with_parts([raced]), real="measured", measured=True)


def _untimed(table: Table, why: str) -> Table:
    return replace(table, notes=(*table.notes, f"the real step was not timed: {why}"))


def with_seen(table: Table) -> Table:
    """The table with what earlier runs recorded of its steps, if they did.

    One that was measured stays as it is: its race was run on both sides, under equal conditions.
    """
    parts, seen_on = [], set[str]()
    for part in () if table.measured else table.parts:
        seen = lookup(part.key, part.predictions)
        if seen:
            seen_on |= set(seen)
            note = f"step times on {_listed(seen)} were seen in earlier runs; what they are made of is predicted"
            steps = None if table.unit is JOB else table.repeats
            part = replace(part, predictions=corrected(part.predictions, seen, steps), notes=(*part.notes, note))
        parts.append(part)
    if not seen_on:
        return table
    return replace(table.with_parts(parts), real=f"seen in earlier runs on {_listed(seen_on)}")


def _listed(devices: Iterable[str]) -> str:
    return " and ".join(sorted(devices))


def _overlap(competing: dict[str, Prediction], chosen: str) -> bool:
    """Whether any other interval reaches into that of the chosen device."""
    if chosen not in competing:
        return True
    return any(p.low <= competing[chosen].high for name, p in competing.items() if name != chosen)


#: Share of the time from which on a device counts as busy: a desktop that is drawn stays below.
BUSY = 0.5


def occupied(devices: Iterable[str]) -> tuple[str, ...]:
    """A sentence for every accelerator that other processes keep busy, as far as that can be told without a context.

    One that this process uses already is left out: its own work cannot be told from that of others.
    """
    found = []
    for device in devices:
        elsewhere = "@" in device  # of another machine
        if elsewhere or machine.split_device(device)[0] == "cpu" or machine.has_context(device):
            continue
        share = machine.utilization(device)
        if share is not None and share >= BUSY:
            found.append(f"{device} is {share:.0%} busy with other jobs, and predicted as if it were free")
    return tuple(found)


def with_occupied(table: Table) -> Table:
    """The table with what is occupied now."""
    told = occupied(table.costs)
    return replace(table, occupied=told, notes=(*table.notes, *told))
