"""Real step times in the place of predicted ones: timed now on copies, or seen in earlier runs of the same step."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median, quantiles
from types import FunctionType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from placer import machine
from placer.decision import history
from placer.decision.decision import decide
from placer.decision.plan import Plan, make_plan, only_placer_errors, said, with_occupied, with_threads
from placer.decision.request import Request
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


def with_race(plan: Plan, workload: Workload, measure: str) -> Plan:
    """The plan after timing the real step on the devices that compete; as it was if there is nothing to settle.

    The same, with a note, where the copies that are timed would run what is the user's own, or cannot run.
    """
    competing = {name: p for name, p in plan.predictions.items() if p.fits}
    if len(competing) < 2 or (measure == "unsure" and not _overlap(competing, plan.decision.device)):
        return plan
    if getattr(workload.target, "_compiled_call_impl", None) is not None:  # what ``.compile()`` made, no copy has
        return _untimed(plan, "a copy would have to be compiled again")
    if (function := shared_function(workload)) is not None:
        return _untimed(plan, f"copies of the model would call {function} too")
    try:
        with _cpu_threads(plan.predictions):
            results = race(workload, tuple(competing))
    except Exception as error:  # noqa: BLE001 - the user's code, on copies and on devices it was not written for
        return _untimed(plan, f"{type(error).__name__}: {first_line(error)}")
    note = "step times were measured on this machine; what they are made of is predicted"
    return replace(_corrected(plan, results, workload.steps, "measured", note), measured=True)


def _untimed(plan: Plan, why: str) -> Plan:
    return replace(plan, notes=(*plan.notes, f"the real step was not timed: {why}"))


def with_seen(plan: Plan, steps: int | None) -> Plan:
    """The plan with what earlier runs recorded of its step, if they did.

    A plan that was measured stays as it is: its race was run on both sides, under equal conditions.
    """
    seen = {} if plan.measured else lookup(plan.key, plan.predictions)
    if not seen:
        return plan
    where = " and ".join(sorted(seen))
    note = f"step times on {where} were seen in earlier runs; what they are made of is predicted"
    return _corrected(plan, seen, steps, f"seen in earlier runs on {where}", note)


def _corrected(plan: Plan, seen: dict[str, Seen], steps: int | None, source: str, note: str) -> Plan:
    predictions = corrected(plan.predictions, seen, steps)
    decision = with_threads(decide(predictions, steps, plan.objective), plan.decision.thread_options)
    return replace(
        plan,
        decision=said(
            replace(decision, reason=f"{decision.reason} ({source})"), (*plan.left_out, *plan.occupied)
        ),
        predictions=predictions,
        notes=(*plan.notes, note),
    )


def _overlap(competing: dict[str, Prediction], chosen: str) -> bool:
    """Whether any other interval reaches into that of the chosen device."""
    if chosen not in competing:
        return True
    return any(p.low <= competing[chosen].high for name, p in competing.items() if name != chosen)


@contextlib.contextmanager
def _cpu_threads(predictions: Mapping[str, Prediction]) -> Iterator[None]:
    """The number of threads the CPU's prediction is for, restored afterwards."""
    wanted = predictions["cpu"].threads if "cpu" in predictions else torch.get_num_threads()
    with running_with(wanted):
        yield


def plan_for(request: Request) -> Plan:
    """The plan for a request, with what is known of busy devices and of real step times. Raises PlacerError."""
    workload = request.workload
    with only_placer_errors():
        plan = with_occupied(make_plan(workload, request.comparison()))
        plan = plan if request.measure == "never" else with_race(plan, workload, request.measure)
        return with_seen(plan, workload.steps)
