"""Which of the published steps are used: many sources time the same step again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from placer.calibration.published.steps import PublishedStep

#: Steps of one network, GPU, mode, dtype, layout and batch that are used.
_ALIKE = 2


def chosen_steps(steps: Sequence[PublishedStep], seed: int = 0) -> Iterator[PublishedStep]:
    """The steps in an order that depends on the seed alone, without the third and later ones that are alike."""
    seen: Counter[tuple[object, ...]] = Counter()
    for number in np.random.default_rng(seed).permutation(len(steps)).tolist():
        step = steps[number]
        timm = step.source == "timm"  # which repeats a network at many sizes
        key = step.network, step.gpu, step.mode, step.dtype, step.channels_last, step.part, 0 if timm else step.batch
        seen[key] += 1
        if seen[key] <= (1 if timm else _ALIKE):
            yield step
