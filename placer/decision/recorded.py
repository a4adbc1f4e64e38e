"""What real steps of earlier runs tell: the time of the very same step, and an offset for other sizes of its network.

The same step takes what it took. A step of another batch or length has its prediction moved by the offset of the one
that was timed, ``log(real / priced)``: whole while that one is fresh and of the same length, less the longer ago it was
and the more the two predictions differ. In a step of another length, other things take the time: on a GPU that waits
for its host an offset holds at all sizes, while on a CPU a small step starts ops and a large one computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from statistics import median, quantiles
from typing import Any, NamedTuple

import placer
from placer import machine
from placer.decision import history
from placer.decision.objective import JOB
from placer.decision.steps import StepIdentity
from placer.decision.table import PricedPart, RealSteps, Table
from placer.pricing import NOT_PREDICTED, Z90, Cost, Prediction
from placer.profile import Profile
from placer.units import format_duration, format_ratio

#: Fewer timed steps than this say too little. Those of ``Placement.step`` are a second's at least, however short.
LEAST_STEPS = 5
#: Another run differs from the one that was timed by at least this factor, either way, however even its steps were.
LEAST_SPREAD = 1.1
#: Seconds for which an offset counts whole: the machine is still what it was then.
FRESH = 60.0
#: How much of an older one counts (docs/dev/findings.md: an offset of another moment).
LATER = 0.5
#: Standard deviation of log(seconds) where an offset counts wholly: 93 % of the larger batches of three machines with a
#: GPU lie within their interval then (``placer validate --against RECORD``, "beside one real step").
NEAR = 0.12


class StepTime(NamedTuple):
    """Seconds of real steps: median, and what 90 % of them lay between; ``timed`` is how many those are."""

    step_seconds: float
    low: float
    high: float
    timed: int = 0

    @classmethod
    def of(cls, seconds: Sequence[float]) -> StepTime:
        """What these steps took."""
        cuts = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else seconds
        return cls(median(seconds), cuts[0], cuts[-1], len(seconds))


def moved(predicted: float, low: float, high: float, *, ratio: float, weight: float) -> StepTime:
    """Predicted seconds and their 90 % interval, moved by a step of another size that took ``ratio`` times its own.

    ``weight``, from 0 to 1, is how much of the logarithm of that counts: the more, the less of the variance of the
    prediction is left. No interval gets wider.
    """
    real = predicted * math.pow(ratio, weight)
    left = math.sqrt(1.0 - weight**2)
    below, above = (
        math.hypot(weight * min(Z90 * NEAR, spread), left * spread)
        for spread in (math.log(predicted / low), math.log(high / predicted))
    )
    return StepTime(real, real * math.exp(-below), real * math.exp(above))


def counts(priced: float, timed: float, age: float | None) -> float:
    """How much of an offset counts, from 0 to 1: by the ratio of the shorter to the longer step, and by its age.

    ``priced`` and ``timed`` are the predictions, in seconds, of the step that is asked about and of the one that was
    timed, ``age`` the seconds since then (None: not known).
    """
    fresh = age is not None and age <= FRESH
    return (1.0 if fresh else LATER) * min(priced, timed) / max(priced, timed)


def record(identity: StepIdentity, prediction: Cost, profile: Profile, time: StepTime) -> None:
    """Real steps into the history, for what is asked later. Never raises.

    ``prediction`` is what was said of them, by the ``profile``.
    """
    history.record(
        {
            "kind": "steps",
            "workload": identity.step,
            "network": identity.network,
            "batch": identity.batch,
            "inputs": identity.inputs,
            "device": prediction.device,
            "threads": prediction.threads,
            "hardware": hardware(prediction.device),
            "predicted_seconds": prediction.step_seconds,
            # By its prices alone, whatever real steps have made of it.
            "priced_seconds": prediction.step_seconds - prediction.components.get(NOT_PREDICTED, 0.0),
            "priced_by": priced_by(profile),
            "step_seconds": time.step_seconds,
            "low": time.low,
            "high": time.high,
            "steps_timed": time.timed,
        }
    )


def priced_by(profile: Profile) -> str:
    """What a price is from. An offset is of no use to prices of another calibration, or of another version."""
    return f"{profile.created or profile.name} by {placer.__version__}"


def hardware(device: str) -> str:
    """What a device's name stands for on this machine now: the same name may be another GPU after a change."""
    if device == "cpu":
        return machine.cpu_model()
    facts = next((f for f in machine.describe_accelerators() if f.get("device") == device), {})
    return f"{facts.get('name')}, {facts.get('memory_bytes')} bytes"


@dataclass(frozen=True)
class _Real:
    """What the history says of a step on a device; of several, what has the largest ``weight`` counts."""

    time: StepTime
    weight: float
    steps: RealSteps
    note: str


def with_recorded(table: Table, now: datetime | None = None) -> Table:
    """The table with what earlier runs recorded of its steps, or of other sizes of the same networks, if they did."""
    now = now or datetime.now(timezone.utc)
    steps = None if table.unit == JOB else table.repeats
    parts: list[PricedPart] = []
    real: dict[str, RealSteps] = {}
    for part in table.parts:
        real_steps = _lookup(part, priced_by(table.profile), now)
        times = {device: row.time for device, row in real_steps.items()}
        predictions = {**part.predictions, **corrected(part.predictions, times, steps)}
        notes = (*part.notes, *(row.note for row in real_steps.values()))
        parts.append(replace(part, predictions=predictions, notes=notes))
        real |= {device: row.steps for device, row in real_steps.items()}
    return replace(table, parts=tuple(parts), real=real, predicted=table) if real else table


def _lookup(part: PricedPart, prices: str, now: datetime) -> dict[str, _Real]:
    """By device the newest usable times of the very step, else those of another size that tell the most of it.

    Those on the CPU are of the predicted number of threads. ``prices`` is what the predictions are from.
    """
    identity = part.identity
    lines = history.lines_with(f'"workload":"{identity.step}"', f'"network":"{identity.network}"')
    devices = {device: hardware(device) for device in part.predictions} if lines else {}
    best: dict[str, _Real] = {}
    for line in reversed(lines):
        entry = history.parsed(line) or {}
        device, time = str(entry.get("device")), _step_time(entry)
        if entry.get("kind") != "steps" or time is None or device not in devices:
            continue
        prediction = part.predictions[device]
        other_threads = device == "cpu" and entry.get("threads") != prediction.threads
        if entry.get("hardware") != devices[device] or other_threads:
            continue
        if entry.get("workload") == identity.step:
            note = f"step times on {device} were recorded in earlier runs; what they are made of is predicted"
            real: _Real | None = _Real(time, math.inf, RealSteps("recorded in earlier runs"), note)
        else:
            real = _of_another_size(entry, time, prediction, identity, prices, now)
        if real is not None and (device not in best or real.weight > best[device].weight):
            best[device] = real
    return best


def _step_time(entry: Mapping[str, Any]) -> StepTime | None:
    """What an entry says; None for too few steps, and for values that no clock gives."""
    values: list[Any] = [entry.get(name) for name in ("low", "step_seconds", "high")]
    count = entry.get("steps_timed")
    if not isinstance(count, int) or count < LEAST_STEPS or any(type(value) not in (int, float) for value in values):
        return None
    low, middle, high = values
    if not 0.0 < low <= middle <= high < math.inf:
        return None
    return StepTime(float(middle), min(low, middle / LEAST_SPREAD), max(high, middle * LEAST_SPREAD), count)


def _of_another_size(
    entry: Mapping[str, Any], time: StepTime, prediction: Prediction, identity: StepIdentity, prices: str, now: datetime
) -> _Real | None:
    """The prediction moved by an entry; None where it does not say what was predicted of it, or by other prices."""
    priced = entry.get("priced_seconds")
    if entry.get("priced_by") != prices or not isinstance(priced, float) or not 0.0 < priced < math.inf:
        return None
    if prediction.low <= 0.0:
        return None
    age, batch = _age(entry, now), entry.get("batch")
    weight, ratio = counts(prediction.step_seconds, priced, age), time.step_seconds / priced
    ago = "earlier" if age is None else f"{format_duration(age)} ago"
    at = f"at batch {batch:,}" if isinstance(batch, int) and batch != identity.batch else f"on {entry.get('inputs')}"
    which = f"a step timed {ago} {at}"
    took, counted = format_ratio(ratio), format_ratio(ratio**weight)
    note = f"on {prediction.device}, {which} took {took} its prediction; this one is taken to take {counted} its own"
    time = moved(prediction.step_seconds, prediction.low, prediction.high, ratio=ratio, weight=weight)
    return _Real(time, weight, RealSteps(which, same_step=False), note)


def _age(entry: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds since an entry was written; None where its clock was another one."""
    try:
        age = (now - datetime.fromisoformat(str(entry.get("time")))).total_seconds()
    except (ValueError, TypeError):  # TypeError: a time without a zone
        return None
    return age if age >= 0.0 else None


def corrected(
    predictions: Mapping[str, Prediction], times: Mapping[str, StepTime], steps: int | None
) -> dict[str, Prediction]:
    """Those of the predictions that have step times, with these instead; what was missed is a component of its own."""
    result: dict[str, Prediction] = {}
    for name, time in times.items():
        old = predictions[name]
        missed = time.step_seconds - sum(old.components.values())
        result[name] = replace(
            old,
            step_seconds=time.step_seconds,
            low=time.low,
            high=time.high,
            total_seconds=None if steps is None else old.one_time_seconds + steps * time.step_seconds,
            components={**old.components, NOT_PREDICTED: missed},
        )
    return result
