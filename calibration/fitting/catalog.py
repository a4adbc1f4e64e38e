"""What the catalog knows of the accelerator that is measured: prices of families without samples, and a check."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from placer.calibration.measuring.observation import StepObservation
from placer.errors import UnknownGPU
from placer.pricing import device_model
from placer.profile import find_gpu

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
                return find_gpu(str(facts.get("name"))).name
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
