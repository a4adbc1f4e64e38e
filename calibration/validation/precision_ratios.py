"""What half precision gains on published steps, beside what is predicted to be gained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placer.calibration.validation.priced_step import PricedStep

HALF = ("amp-float16", "amp-bfloat16", "float16", "bfloat16")
FULL = ("float32", "tf32")
#: Batches of two steps that are compared sample by sample differ by this factor at the most.
BATCH_FACTOR = 2.0
#: A predicted ratio is counted as right within this share of the published one.
RIGHT = 0.25


@dataclass(frozen=True)
class PrecisionRatio:
    """The time of a sample in half precision over that of a sample in float32 or TF32, same card and network."""

    half: PricedStep
    full: PricedStep

    @property
    def published(self) -> float:
        """The ratio as published."""
        return self.half.measured / self.half.batch / (self.full.measured / self.full.batch)

    @property
    def predicted(self) -> float:
        """The ratio as predicted."""
        return self.half.predicted / self.half.batch / (self.full.predicted / self.full.batch)


def pairs(priced: Sequence[PricedStep]) -> Iterator[PrecisionRatio]:
    """Each device-bound step in half precision with the step of the nearest batch in float32 and in TF32."""
    alike: dict[tuple[str, ...], list[PricedStep]] = defaultdict(list)
    for step in priced:
        if step.device_bound and step.batch > 0:
            alike[step.source, step.gpu, step.network, step.mode].append(step)
    for steps in alike.values():
        for half in steps:
            for dtype in FULL:
                full = [s for s in steps if s.dtype == dtype and _factor(s, half) <= BATCH_FACTOR]
                if half.dtype in HALF and full:
                    yield PrecisionRatio(half, min(full, key=lambda s: _factor(s, half)))


def _factor(one: PricedStep, other: PricedStep) -> float:
    return max(one.batch, other.batch) / min(one.batch, other.batch)


def precision_ratios(priced: Sequence[PricedStep]) -> Iterator[str]:
    """A Markdown table by precisions and GPU; nothing where no two steps can be compared."""
    groups: dict[tuple[str, str], list[PrecisionRatio]] = defaultdict(list)
    for pair in pairs(priced):
        groups[f"{pair.half.dtype} / {pair.full.dtype}", pair.half.gpu].append(pair)
    if not groups:
        return
    yield ""
    yield f"| Half precision (device-bound) | GPU | pairs | published | predicted | median error | within {RIGHT:.0%} |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for (dtypes, gpu), found in sorted(groups.items()):
        published = np.array([pair.published for pair in found])
        predicted = np.array([pair.predicted for pair in found])
        error = np.abs(predicted / published - 1.0)
        yield (
            f"| {dtypes} | {gpu} | {len(found)} | {np.median(published):.2f} | {np.median(predicted):.2f} | "
            f"{np.median(error):.0%} | {np.mean(error <= RIGHT):.0%} |"
        )
