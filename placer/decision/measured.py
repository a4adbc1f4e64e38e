"""Real step times in the place of predicted ones: timed now on copies, or recorded in earlier runs of the same step."""

from __future__ import annotations

import contextlib
import copy
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
from placer.decision.objective import JOB
from placer.decision.table import Table
from placer.errors import PlacerError, first_line
from placer.nest import map_nest, tensors
from placer.placement import is_plain, move, move_optimizer, synchronize, target
from placer.pricing import NOT_PREDICTED, Prediction
from placer.workload import Workload, loss_modules, loss_of, optimizer_classes, outputs_stay, same_randomness

#: Fewer timed steps than this say too little.
LEAST_STEPS = 20
#: Another run differs from the one that was timed by at least this factor, either way, however even its steps were.
LEAST_SPREAD = 1.1


class StepTime(NamedTuple):
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


def lookup(key: str, predictions: Mapping[str, Prediction]) -> dict[str, StepTime]:
    """The newest usable step times of a workload, by device; those on the CPU only for the predicted threads."""
    newest: dict[str, StepTime] = {}
    for line in reversed(history.lines_with(f'"workload":"{key}"')):
        entry = history.parsed(line) or {}
        device = entry.get("device")
        if entry.get("kind") != "steps" or not isinstance(device, str) or device in newest or device not in predictions:
            continue
        same_threads = device != "cpu" or entry.get("threads") == predictions[device].threads
        if same_threads and entry.get("hardware") == hardware(device) and (times := _step_time(entry)) is not None:
            newest[device] = times
    return newest


def corrected(
    predictions: Mapping[str, Prediction], times: Mapping[str, StepTime], steps: int | None
) -> dict[str, Prediction]:
    """The predictions with real step times instead of predicted ones; what was missed is a component of its own."""
    result = dict(predictions)
    for name, real in times.items():
        old = predictions[name]
        missed = real.step_seconds - sum(old.components.values())
        result[name] = replace(
            old, step_seconds=real.step_seconds, low=real.low, high=real.high,
            total_seconds=None if steps is None else old.one_time_seconds + steps * real.step_seconds,
            components={**old.components, NOT_PREDICTED: missed},
        )  # fmt: skip
    return result


def _step_time(entry: Mapping[str, Any]) -> StepTime | None:
    """What an entry says; None for too few steps, and for values that no clock gives."""
    values: list[Any] = [entry.get(name) for name in ("low", "step_seconds", "high")]
    count = entry.get("steps_timed")
    if not isinstance(count, int) or count < LEAST_STEPS or any(type(value) not in (int, float) for value in values):
        return None
    low, middle, high = values
    if not 0.0 < low <= middle <= high < math.inf:
        return None
    return StepTime(float(middle), min(low, middle / LEAST_SPREAD), max(high, middle * LEAST_SPREAD))


#: Untimed steps on each device: allocation, kernel selection, lazy loading.
WARM_UP = 3
#: Timed rounds, one step per device each; interleaved, so that a slow moment hits all devices alike.
ROUNDS = 15


def race(
    workload: Workload, devices: Sequence[str], *, limit_seconds: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, StepTime]:  # fmt: skip
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
    summaries = {}
    for device, values in seconds.items():
        cuts = quantiles(values, n=20, method="inclusive") if len(values) > 1 else values
        summaries[device] = StepTime(median(values), cuts[0], cuts[-1])
    return summaries


def step_on(workload: Workload, device: str) -> Callable[[], None]:
    """One step as the workload describes it, on a deep copy on ``device``; returns when the device has finished."""
    there = target(device)
    optimizer_given = workload.optimizer
    model, optimizer, loss = _copied(workload)
    model.to(there)
    for module in loss_modules(loss):
        module.to(there)
    if model.training != (workload.mode == "train"):
        model.train(workload.mode == "train")
    if isinstance(optimizer_given, str):
        parameters = [p for p in model.parameters() if p.requires_grad]
        factory = cast(Callable[[list[nn.Parameter]], torch.optim.Optimizer], optimizer_classes()[optimizer_given])
        optimizer = factory(parameters) if parameters else None
    elif optimizer is not None:
        move_optimizer(optimizer)
    batch = map_nest(_real, workload.batch)
    if workload.data == "device":
        batch = move(batch, there)
    elif workload.data == "pinned" and there.type != "cpu":
        batch = map_nest(lambda leaf: leaf.pin_memory() if isinstance(leaf, Tensor) and is_plain(leaf) else leaf, batch)
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


def _copied(workload: Workload) -> tuple[nn.Module, torch.optim.Optimizer | None, Callable[..., Any] | None]:
    """Deep copies: the model, the optimizer of its copied parameters, and a loss with weights; another one as it is.

    They are on the CPU, lest a device hold one more on its way.
    """
    model = cast(nn.Module, workload.model)
    optimizer = workload.optimizer if isinstance(workload.optimizer, torch.optim.Optimizer) else None
    state = tensors(dict(optimizer.state) if optimizer else {})
    weights = (tensor for module in workload.moved for tensor in (*module.parameters(), *module.buffers()))
    memo: dict[int, Any] = {}
    for tensor in (*weights, *state):
        special = nn.Parameter in type(tensor).__mro__[1:]  # a class of parameters that knows how to copy itself
        if special or tensor.device.type in ("cpu", "meta"):
            continue
        host = tensor.detach().to("cpu")
        memo[id(tensor)] = nn.Parameter(host, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else host
    weighted = workload.loss if loss_modules(workload.loss) else None
    model, optimizer, weighted = copy.deepcopy((model, optimizer, weighted), memo)
    return model, optimizer, workload.loss if weighted is None else weighted


def _real(leaf: Any) -> Any:
    """Meta tensors become real ones: random numbers, as zeros make some kernels faster than life; indices are 0."""
    if not isinstance(leaf, Tensor):
        return copy.deepcopy(leaf)
    if leaf.device.type != "meta":
        return leaf.detach().clone()
    if leaf.is_floating_point() or leaf.is_complex():
        return torch.randn(leaf.shape, dtype=leaf.dtype)
    return torch.zeros(leaf.shape, dtype=leaf.dtype)


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


def with_measured(table: Table, workload: Workload, measure: str) -> Table:
    """The table of a step after timing it on the devices that compete; as it was if there is nothing to settle.

    The same, with a note, where that cannot be done (see ``time_steps``).
    """
    (part,) = table.parts
    competing = {name: p for name, p in part.predictions.items() if p.fits}
    if len(competing) < 2:
        return table
    chosen = table.decide().device
    overlap = any(p.low <= competing[chosen].high for name, p in competing.items() if name != chosen)
    if measure == "unsure" and not overlap:
        return table
    try:
        times = time_steps(workload, competing)
    except PlacerError as error:
        return replace(table, notes=(*table.notes, str(error)))
    note = "step times were measured on this machine; what they are made of is predicted"
    timed = replace(part, predictions=corrected(part.predictions, times, table.repeats), notes=(*part.notes, note))
    return replace(table, parts=(timed,), real="measured", predicted=table)


def time_steps(workload: Workload, predictions: Mapping[str, Prediction]) -> dict[str, StepTime]:
    """Real steps on the devices of ``predictions``, timed on copies, with the CPU threads that were priced.

    Raises PlacerError where the copies would run what is the user's own, or cannot run.
    """
    if getattr(workload.model, "_compiled_call_impl", None) is not None:  # what ``.compile()`` made, no copy has
        raise PlacerError(f"{_UNTIMED}: a copy would have to be compiled again")
    if (function := shared_function(workload)) is not None:
        raise PlacerError(f"{_UNTIMED}: copies of the model would call {function} too")
    if workload.draw is not None:
        workload.draw()
    threads = predictions["cpu"].threads if "cpu" in predictions else torch.get_num_threads()
    try:
        with running_with(threads):
            return race(workload, tuple(predictions))
    except Exception as error:
        raise PlacerError(f"{_UNTIMED}: {type(error).__name__}: {first_line(error)}") from error


_UNTIMED = "the real step was not timed"


def with_recorded(table: Table) -> Table:
    """The table with what earlier runs recorded of its steps, if they did.

    One that was measured stays as it is: its steps were timed on both sides, under equal conditions.
    """
    if table.predicted is not None:
        return table
    parts, devices = [], set[str]()
    for part in table.parts:
        times = lookup(part.key, part.predictions)
        if times:
            devices |= set(times)
            note = (
                f"step times on {' and '.join(sorted(times))} were recorded in earlier runs; what they are made of is "
                "predicted"
            )
            steps = None if table.unit == JOB else table.repeats
            part = replace(part, predictions=corrected(part.predictions, times, steps), notes=(*part.notes, note))
        parts.append(part)
    if not devices:
        return table
    real = f"recorded in earlier runs on {' and '.join(sorted(devices))}"
    return replace(table, parts=tuple(parts), real=real, predicted=table)
