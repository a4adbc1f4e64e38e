"""Single ops that take most of a phase: what to rewrite first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placer.explanation.rows import Bottleneck
from placer.pricing import Prediction, PricedTrace

#: Least share of its phase that an op of one layer takes to be a bottleneck.
SHARE = 0.5
#: Least share of the step's compute that the phase takes.
PHASE_SHARE = 0.1
#: Least number of different ops in the phase: of one or two, one always takes most of the time.
LEAST_OPS = 3


def find(predictions: Mapping[str, Prediction]) -> tuple[Bottleneck, ...]:
    """The bottlenecks of every device, in the order of the phases."""
    return tuple(found for device, p in predictions.items() for found in _on_device(device, p.priced))


def _on_device(device: str, priced: PricedTrace) -> Iterator[Bottleneck]:
    phases: dict[str, dict[tuple[str, str], float]] = {}
    for call, seconds in zip(priced.trace.calls, priced.seconds, strict=True):
        ops = phases.setdefault(call.phase, {})
        ops[call.layer, call.op] = ops.get((call.layer, call.op), 0.0) + seconds
    compute = sum(priced.seconds)
    for phase, ops in phases.items():
        whole = sum(ops.values())
        timed = {key: seconds for key, seconds in ops.items() if seconds > 0.0}
        if len(timed) < LEAST_OPS or whole < PHASE_SHARE * compute:
            continue
        (layer, op), seconds = max(timed.items(), key=lambda item: item[1])
        if seconds >= SHARE * whole:
            yield Bottleneck(device, phase, layer, op, seconds, whole)
