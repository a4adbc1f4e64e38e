"""Fits all numbers of an accelerator: device times of ops as for the CPU, and the host's time to issue them.

On an accelerator a step lasts as long as the slower of host and device, so what it takes beyond its ops says nothing
about the framework unless the device was idle most of the time. The host's share is learnt from such steps only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.calibration.fitting.device import (
    LEAST_JUDGED,
    UNKNOWN,
    ChosenHyperparameters,
    counts_to_fit,
    fit_ops,
    least_base,
    measured_pace,
    op_seconds,
    positive_costs,
    split,
    step_weight,
)
from placer.calibration.fitting.moments import Moments
from placer.calibration.fitting.transfer import Expectation
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.calibration.measuring.step_timing import HOST_BOUND
from placer.errors import UnknownGPU
from placer.pricing import (
    HOST,
    HOST_KERNEL,
    HOST_UPDATE,
    KERNELS,
    CostModel,
    device_model,
    doubt,
    framework_seconds,
    host_seconds,
    issued_as,
    kernels_of,
    parameter_updates,
    pause_seconds,
    waits_for_device,
)
from placer.profile import DeviceFit, reported_gpu

Array = NDArray[np.float64]

#: Relative difference of what a count costs the host of an accelerator, and the CPU when it runs the ops itself: their
#: operands go through its caches then.
HOST_SPREAD = 0.8
#: The quantile of an op's host times that is taken for hot: as in a network, which runs the same few ops many times.
HOT = 0.1
#: Of an optimizer that was seen with fewer numbers of tensors than this, all optimizers tell more, by their ops.
LEAST_UPDATES = 4


def issue_seconds(observations: Sequence[StepObservation]) -> dict[str, float]:
    """Seconds the host needs to issue a call whose code is hot: of each op, of each family, of all; updates apart.

    Most ops of a calibration's steps run once, after code of others: what that takes beyond is told by how far away
    the last run of an op was, and fitted with all that lies between ops.

    Steps in which the device waited for the host tell more of it: an op that is in any of them is told by them alone.
    Where the host waits inside an op, the wait is no issue: pricing adds it, and takes the family's time for the op.
    """
    waited = [s for s in observations if sum((op.seconds or 0.0) * op.count for op in s.ops) < HOST_BOUND * s.seconds]
    updates = _updates(observations)
    return {
        **_hot(observations), **_hot(waited), **_recurrent_costs(observations),
        **_update_costs({**updates, **_telling(_updates(waited))}),
    }  # fmt: skip


def kernel_counts(observations: Sequence[StepObservation]) -> dict[str, float]:
    """Kernels that one call of each op runs in: the median, as far as kernels were recorded."""
    seen: dict[str, list[float]] = {}
    for step in observations:
        for op in step.ops:
            if op.kernels > 0.0 and (op.family != "optimizer" or step.family == "optimizer"):
                seen.setdefault(f"{KERNELS}/{issued_as(op.work())}", []).append(op.kernels)
    return {name: statistics.median(values) for name, values in seen.items()}


def _hot(observations: Sequence[StepObservation]) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    for step in observations:
        for op in step.ops:
            if op.host_seconds > 0.0 and not waits_for_device(op.op) and op.family != "optimizer":
                for name in (f"{HOST}/{op.op}", f"{HOST}/{op.family}", HOST):
                    seen.setdefault(name, []).append(op.host_seconds)
    return {name: float(np.quantile(values, HOT)) for name, values in seen.items()}


def _recurrent_costs(observations: Sequence[StepObservation]) -> dict[str, float]:
    """What a recurrent op takes the host whatever its size, and what each of its kernels adds.

    A layer has few kernels or thousands, and few layers are timed: all kinds of them tell of each.
    """
    ops = [op for step in observations for op in step.ops if op.family == "recurrent" and "_cell" not in op.op]
    costs: dict[str, float] = {}
    for backward in (False, True):
        some = [op for op in ops if op.op.endswith("_backward") == backward and min(op.kernels, op.host_seconds) > 0.0]
        if len({op.kernels for op in some}) < LEAST_UPDATES:
            continue
        call, kernel = _whole_and_each([op.kernels for op in some], [op.host_seconds for op in some])
        for name in {op.op for op in some}:
            costs |= {f"{HOST}/{name}": call, f"{HOST_KERNEL}/{name}": kernel}
    return costs


def _updates(observations: Sequence[StepObservation]) -> dict[str, list[OpObservation]]:
    """The updates by the name that each is issued as, and all but the fused ones as their family's.

    Of probes only: what is divided among its calls is right where all tensors are equal.
    """
    found: dict[str, list[OpObservation]] = {}
    for op in (op for step in observations if step.family == "optimizer" for op in step.ops):
        if op.family == "optimizer" and op.host_seconds > 0.0:
            name = issued_as(op.work())
            for known_as in (name, op.family) if name == op.op else (name,):
                found.setdefault(known_as, []).append(op)
    return found


def _telling(updates: Mapping[str, list[OpObservation]]) -> dict[str, list[OpObservation]]:
    """Those of enough numbers of tensors to tell what a tensor adds."""
    return {name: ops for name, ops in updates.items() if len({op.count for op in ops}) >= LEAST_UPDATES}


def _update_costs(updates: Mapping[str, list[OpObservation]]) -> dict[str, float]:
    everyone = updates.get("optimizer")
    costs = {} if everyone is None else _update_seconds("optimizer", everyone)
    own = _telling(updates)
    # What is left is known by the ops that its update is: those of all optimizers take the host much the same.
    others = dict.fromkeys(parameter_updates.KNOWN, everyone) if everyone is not None else {}
    for name, probes in {**others, **own}.items():
        costs |= _update_seconds(name, probes)
    return costs


def _update_seconds(name: str, probes: Sequence[OpObservation]) -> dict[str, float]:
    """What an update takes the host whatever it updates, and what each tensor adds.

    On a GPU one call updates all of them (``foreach``): a time per tensor alone is right for one number of tensors.
    Probes of other optimizers count by their number of ops.
    """
    tensors = np.array([float(op.count) for op in probes])
    ops = np.array([1.0 if name == "optimizer" else _ops(name) / _ops(op.op) for op in probes])
    whole, each = _whole_and_each(tensors, np.array([op.host_seconds for op in probes]) * tensors * ops)
    return {f"{HOST_UPDATE}/{name}": whole, f"{HOST}/{name}": each}


def _whole_and_each(counts: ArrayLike, seconds: ArrayLike) -> tuple[float, float]:
    """What a call takes whatever it holds, and what each of ``counts`` adds; what is far off is left out."""
    seconds = np.asarray(seconds)
    columns = np.column_stack([np.ones(len(seconds)), counts])
    whole, each = positive_costs(columns, seconds, 1.0 / seconds, np.zeros(2), HOST_SPREAD).tolist()
    return whole, each


def _ops(optimizer: str) -> int:
    """Ops over all tensors that an update is; a fused one is compared with fused ones only."""
    return parameter_updates.foreach(optimizer, momentum=False, weight_decay=False)[0]


def issued_seconds(step: StepObservation, issue: Mapping[str, float]) -> float:
    """Seconds the host needs to issue all ops of a step; ``issue`` is what each takes."""
    return sum(host_seconds(op.work(), issue) * op.count for op in step.ops)


def seconds_between_ops(
    observations: Sequence[StepObservation], issue: Mapping[str, float], fit: DeviceFit, on_cpu: Mapping[str, float]
) -> dict[str, float]:
    """Seconds per forward op, module call, ... of host-bound steps beyond what issuing their ops takes.

    ``on_cpu`` is what each costs when the CPU runs the ops: at the pace seen here, it holds coefficients that the steps
    hardly tell apart.
    """
    model = CostModel(fit)
    free = [s for s in observations if not any(waits_for_device(op.op) for op in s.ops)]
    steps = [s for s in free if op_seconds(s, model) < HOST_BOUND * s.seconds]
    names = counts_to_fit(steps, on_cpu)
    if not steps or not names:
        return {}
    rows: Array = np.array([[s.counts.get(name, 0.0) for name in names] for s in steps])
    waits = launch_and_wait(fit)
    missing = [s.seconds - waits - issued_seconds(s, issue) for s in steps]
    seconds, weights = np.array(missing), np.array([step_weight(s) for s in steps])
    there = np.array([on_cpu.get(name, 0.0) for name in names])
    pace = measured_pace(rows @ there, seconds, weights)
    if pace is None and len(steps) < 2 * len(names):
        return {}
    costs = positive_costs(rows, seconds, weights, there * (pace or 0.0), HOST_SPREAD)
    return dict(zip(names, costs.tolist(), strict=True))


def launch_and_wait(fit: DeviceFit) -> float:
    """What a step timed on its own takes besides host and kernels: the last launch, and the wait."""
    return fit.rates.get("launch_seconds", 0.0) + fit.rates.get("sync_seconds", 0.0)


def fit_accelerator(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    expected: Expectation | None = None, host: Mapping[str, float] | None = None, gpu: str = "",
) -> DeviceFit:  # fmt: skip
    """All numbers of one accelerator; ``expected`` is what another machine's knows.

    ``host`` is the ``framework`` of a fit of this machine's CPU: between the ops the same code runs, whatever executes
    them, and most of its costs are better told apart where no device is waited for.

    ``framework`` holds ``host/<op>``, ``host/<family>`` and ``host``: seconds to issue one call; ``host_update/<op>``:
    what an update takes besides; ``kernels/<op>``: the kernels that a call runs in; and what the framework's own code
    takes between them. The interval comes from steps
    held out of a first fit. ``gpu`` is what the catalog calls the accelerator: it prices families without own samples.
    """
    chosen = ChosenHyperparameters()
    reference = expected.name if expected is not None else ""
    empty = DeviceFit(device, threads, dict(rates), {}, {}, {}, reference=reference, gpu=gpu)

    def fit(some: Sequence[StepObservation]) -> DeviceFit:
        found, _ = fit_ops(some, empty, chosen, expected, Moments())
        issue = issue_seconds(some)
        between = seconds_between_ops(some, issue, found, host or {})
        return replace(found, framework={**issue, **kernel_counts(some), **between})

    held, rest = split(observations)
    first = fit(rest)
    return replace(fit(observations), interval=_interval(held, first))


def predict_alone(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step: host or device, and the wait."""
    fit = model.fit
    works = [op.work() for op in step.ops]
    seconds, sigma, _ = model.price_works(works)
    pauses = [pause_seconds(kernels_of(work, fit.framework), fit) for work in works]
    prices = [(price + pause if price > 0.0 else 0.0) * op.count
              for op, price, pause in zip(step.ops, seconds, pauses, strict=True)]  # fmt: skip
    device = sum(prices)
    host = issued_seconds(step, fit.framework)
    host += framework_seconds(step.counts, fit.framework)
    total = max(host, device) + launch_and_wait(fit)
    # While the device waits for the host, doubt about its kernels is none about the step.
    share = 1.0 if device >= host else device / host
    return total, share * doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def _interval(held: Sequence[StepObservation], fit: DeviceFit) -> dict[str, float]:
    """The interval that holds nine held-out steps in ten."""
    model = CostModel(fit)
    predicted = [(step.seconds, *predict_alone(step, model)) for step in held]
    found = [(abs(math.log(seconds / p)), sigma) for seconds, p, sigma in predicted if p > 0.0]
    if len(found) < LEAST_JUDGED:
        return dict(UNKNOWN)
    return {"base": least_base(*np.array(found).T), "ops": 1.0}


#: Families whose large ops say what arithmetic and what memory reach, and what a reader calls them.
_LARGE = {"matmul": "large products", "elementwise": "large elementwise operations"}
#: Seconds that a large op is expected to take at the least: launches and caches no longer count.
_FROM = 200e-6
#: Fewer large ops than this show nothing.
_LEAST = 3
#: Factor from which on measured and published times contradict each other. GPUs of one model differ by far less.
_CONTRADICTION = 2.0


def catalog_gpu(fingerprint: Mapping[str, Any], device: str) -> str:
    """The catalog name of an accelerator of the machine; "" where the catalog lacks it."""
    for facts in fingerprint.get("accelerators") or ():
        if facts.get("device") == device:
            try:
                return reported_gpu(facts).name
            except UnknownGPU:
                return ""
    return ""


def contradictions(observations: Sequence[StepObservation], device: str, gpu: str) -> tuple[str, ...]:
    """A warning for each kind of large op that takes twice what is known of ``gpu``, or half of it."""
    found: list[str] = []
    for family, words in _LARGE.items():
        timed = (op for step in observations for op in step.ops if op.family == family)
        ops = [(op.work(), op.seconds) for op in timed if op.seconds]
        expected, _, _ = device_model(gpu).price([work for work, _ in ops])
        ratios = [seconds / price for (_, seconds), price in zip(ops, expected, strict=True) if price >= _FROM]
        if len(ratios) < _LEAST:
            continue
        ratio = statistics.median(ratios)
        if not 1.0 / _CONTRADICTION <= ratio <= _CONTRADICTION:
            found.append(
                f"{device}: {words} take {ratio:.2g} times what is known of {gpu}: a driver, a power limit, a share of "
                "a partitioned GPU or a broken clock may be why"
            )
    return tuple(found)
