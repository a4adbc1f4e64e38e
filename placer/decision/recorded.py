"""What real steps of earlier runs tell: the time of the very same step, and an offset for other sizes of its network.

The same step takes what it took. A step of another batch or length has its prediction moved by the offset of the one
that was timed, ``log(real / priced)``: whole while that one is fresh and of the same length, less the longer ago it was
and the more the two predictions differ. In a step of another length, other things take the time: on a GPU that waits
for its host an offset holds at all sizes, while on a CPU a small step starts ops and a large one computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import placer
from placer import machine
from placer.decision import history
from placer.decision.objective import JOB
from placer.decision.steps import StepIdentity
from placer.decision.table import PricedPart, RealSteps, Table
from placer.pricing import NOT_PREDICTED, Z90, Cost, Prediction
from placer.profile import Profile
from placer.units import format_ratio

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
_AGES = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))


class StepTime(NamedTuple):
    """Seconds of real steps: median, and what 90 % of them lay between; ``timed`` is how many those are."""

    step_seconds: float
    low: float
    high: float
    timed: int = 0


@dataclass(frozen=True)
class Offset:
    """What a timed step tells of those of other sizes: it took ``ratio`` times its prediction.

    ``weight`` is how much of the logarithm of that counts, from 0 to 1. ``said`` is which step it was.
    """

    ratio: float
    weight: float
    said: str = ""

    def moved(self, predicted: float, low: float, high: float) -> StepTime:
        """Predicted seconds and their 90 % interval with what counts of the offset.

        The more counts, the less of the variance of the prediction is left; no interval gets wider.
        """
        real = predicted * math.pow(self.ratio, self.weight)
        left = math.sqrt(1.0 - self.weight**2)
        below, above = (
            math.hypot(self.weight * min(Z90 * NEAR, spread), left * spread)
            for spread in (math.log(predicted / low), math.log(high / predicted))
        )
        return StepTime(real, real * math.exp(-below), real * math.exp(above))


def counts(priced: float, timed: float, age: float | None) -> float:
    """How much of an offset counts, from 0 to 1: by the ratio of the shorter to the longer step, and by its age.

    ``priced`` and ``timed`` are the predictions, in seconds, of the step that is asked about and of the one that was
    timed, ``age`` the seconds since then (None: not known).
    """
    fresh = age is not None and 0.0 <= age <= FRESH
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
            "priced_seconds": priced_seconds(prediction),
            "priced_by": priced_by(profile),
            "step_seconds": time.step_seconds,
            "low": time.low,
            "high": time.high,
            "steps_timed": time.timed,
        }
    )


def priced_seconds(prediction: Cost) -> float:
    """What a step takes by its prices alone, whatever real steps have made of it."""
    return prediction.step_seconds - prediction.components.get(NOT_PREDICTED, 0.0)


def priced_by(profile: Profile) -> str:
    """What a price is from. An offset is of no use to prices of another calibration, or of another version."""
    return f"{profile.created or profile.name} by {placer.__version__}"


def hardware(device: str) -> str:
    """What a device's name stands for on this machine now: the same name may be another GPU after a change."""
    if device == "cpu":
        return machine.cpu_model()
    facts = next((f for f in machine.describe_accelerators() if f.get("device") == device), {})
    return f"{facts.get('name')}, {facts.get('memory_bytes')} bytes"


def with_recorded(table: Table, now: datetime | None = None) -> Table:
    """The table with what earlier runs recorded of its steps, or of other sizes of the same networks, if they did."""
    now = now or datetime.now(timezone.utc)
    steps = None if table.unit == JOB else table.repeats
    parts, said = list[PricedPart](), dict[str, RealSteps]()
    for part in table.parts:
        same, offsets = lookup(part.identity, part.predictions, priced_by(table.profile), now)
        times = dict(same)
        for name, offset in offsets.items():
            prediction = part.predictions[name]
            times[name] = offset.moved(prediction.step_seconds, prediction.low, prediction.high)
        predictions = {**part.predictions, **corrected(part.predictions, times, steps)}
        said |= {name: RealSteps(offset.said, same_step=False) for name, offset in offsets.items()}
        said |= {name: RealSteps("recorded in earlier runs") for name in same}
        notes = [*_notes(same), *(_note(name, offset) for name, offset in offsets.items())]
        parts.append(replace(part, predictions=predictions, notes=(*part.notes, *notes)))
    return replace(table, parts=tuple(parts), real=said, predicted=table) if said else table


def _notes(times: Mapping[str, StepTime]) -> Iterator[str]:
    if times:
        devices = " and ".join(sorted(times))
        yield f"step times on {devices} were recorded in earlier runs; what they are made of is predicted"


def _note(device: str, offset: Offset) -> str:
    took, counted = format_ratio(offset.ratio), format_ratio(offset.ratio**offset.weight)
    return f"on {device}, {offset.said} took {took} its prediction; this one is taken to take {counted} its own"


def lookup(
    identity: StepIdentity, predictions: Mapping[str, Prediction], prices: str, now: datetime
) -> tuple[dict[str, StepTime], dict[str, Offset]]:
    """By device, the newest usable times of the very step; elsewhere the offset, if any, that counts most.

    Those on the CPU are of the predicted number of threads. ``prices`` is what the predictions are from.
    """
    times, offsets = dict[str, StepTime](), dict[str, Offset]()
    here, told = dict[str, str](), set[bytes]()
    texts = f'"workload":"{identity.step}"', f'"network":"{identity.network}"'
    for line in reversed(history.lines_with(*texts)):
        what = _what(line)
        if what in told:
            continue
        entry = history.parsed(line) or {}
        device = entry.get("device")
        if entry.get("kind") != "steps" or not isinstance(device, str) or device not in predictions or device in times:
            continue
        prediction, time = predictions[device], _step_time(entry)
        if time is None or (device == "cpu" and entry.get("threads") != prediction.threads):
            continue
        if device not in here:
            here[device] = hardware(device)
        if entry.get("hardware") != here[device]:
            continue
        if entry.get("workload") == identity.step:
            times[device] = time
        elif (offset := _offset(entry, time, prediction, identity, prices, now)) is not None:
            told |= {what} if what else set()
            if device not in offsets or offset.weight > offsets[device].weight:
                offsets[device] = offset
    return times, {device: offset for device, offset in offsets.items() if device not in times}


def _what(line: bytes) -> bytes:
    """Which step on which device a line is of, not parsed: a long run writes many of one, and the newest counts.

    Empty where that cannot be told.
    """
    return line[line.find(b'"workload"') : line.find(b'"hardware"')]


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


def _offset(
    entry: Mapping[str, Any], time: StepTime, prediction: Prediction, identity: StepIdentity, prices: str, now: datetime
) -> Offset | None:
    """What an entry of another size tells; None where it does not say what was predicted of it, or by other prices."""
    priced = entry.get("priced_seconds")
    if entry.get("priced_by") != prices or not isinstance(priced, float) or not 0.0 < priced < math.inf:
        return None
    if prediction.low <= 0.0:
        return None
    age = _age(entry, now)
    batch = entry.get("batch")
    at = f"at batch {batch:,}" if isinstance(batch, int) and batch != identity.batch else f"on {entry.get('inputs')}"
    return Offset(
        time.step_seconds / priced, counts(prediction.step_seconds, priced, age), f"a step timed {_ago(age)} {at}"
    )


def _age(entry: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds since an entry was written; None where its clock was another one."""
    try:
        age = (now - datetime.fromisoformat(str(entry.get("time")))).total_seconds()
    except (ValueError, TypeError):  # TypeError: a time without a zone
        return None
    return age if age >= 0.0 else None


def _ago(age: float | None) -> str:
    """``just now``, ``40 s ago``, ``4 min ago``, ``3 days ago``."""
    if age is None:
        return "earlier"
    if age < 1.0:
        return "just now"
    for scale, unit in _AGES:
        if age >= 2.0 * scale:
            return f"{age / scale:.0f} {unit} ago"
    return f"{age:.0f} s ago"
