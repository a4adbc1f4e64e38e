"""Step times seen in earlier runs of the same workload on this machine, and predictions corrected by them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from placer import machine
from placer.decision import history, settings
from placer.pricing import NOT_PREDICTED, Prediction
from placer.tracing import OpCall, Trace
from placer.workload import Workload

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


def workload_key(trace: Trace, workload: Workload) -> str:
    """Equal, in every process on this machine, for steps of the same ops on the same kinds of tensors.

    Another version of torch is another key, as its steps may take another time.
    """
    digest = hashlib.sha256()
    facts = (
        machine.machine_id(), torch.__version__, machine.matmul_precision(), trace.mode, trace.optimizer,
        workload.data, str(workload.autocast), trace.module_calls, *settings.unusual(),
        *filter(None, (workload.loading, workload.loop_calls, trace.compiled)),
    )  # fmt: skip
    digest.update(repr(facts).encode())
    for calls in (trace.calls, *(other.calls for _, other in sorted(trace.others.items()))):
        inputs = {id(spec): spec for call in calls for spec in call.inputs}  # few: equal ones are one object
        shown = {number: f"{s.shape}{s.stride}{s.dtype}" for number, s in inputs.items()}
        lines = (f"{c.op}{c.phase}{_given(c, trace)}[{', '.join([shown[id(s)] for s in c.inputs])}]" for c in calls)
        digest.update("".join(lines).encode())
    return digest.hexdigest()[:32]


def _given(call: OpCall, trace: Trace) -> tuple[Hashable, ...]:
    """The arguments of a call; of a step that ran, without numbers that its values may have given."""
    return tuple([a for a in call.args if type(a) is not float]) if trace.real else call.args


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
