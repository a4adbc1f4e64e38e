"""``python -m placer.calibration.lab.published.operators``: how well operators are priced that no fit saw.

Two questions: shapes held out on GPUs with published rows, and GPUs of a chip of which nothing was seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placer.calibration.lab.published.fit import CACHE, fit_to, read_samples
from placer.calibration.lab.published.samples import Sample, Table
from placer.calibration.lab.published.training import EPOCHS, Trainer
from placer.profile import find_gpu

#: Chips that are left out in turn, with all their cards.
CHIPS = {"V100": "GV100", "T4": "TU104", "P100": "GP100", "A100": "GA100", "H100": "GH100"}


def main(cache: Path = CACHE, epochs: int = EPOCHS) -> None:
    """Fit once without the shapes held out and once without each chip; print both tables as Markdown."""
    samples = read_samples(cache)
    print("\n".join(tables(Trainer(samples, Table(samples)), epochs)))


def tables(trainer: Trainer, epochs: int) -> Iterator[str]:
    """The lines of both tables."""
    samples = trainer.samples
    chosen = fit_to(samples)
    trainer.fit(chosen, epochs=epochs)
    held = [i for i, s in enumerate(samples) if s.use == "held out"]
    yield "| operators, shapes held out | rows | median error | p90 | bias | roofline |"
    yield "|---|--:|--:|--:|--:|--:|"
    predicted = trainer.predicted(held, known=True)
    yield _line("all", trainer, held, predicted)
    groups: dict[str, list[int]] = defaultdict(list)
    for place, i in enumerate(held):
        row, _, dtype = trainer.table.instances[trainer.table.members[i][0][0]]
        groups[f"{row.kind}, {dtype}"].append(place)
    for name, places in sorted(groups.items()):
        yield _line(name, trainer, [held[p] for p in places], predicted[places])
    yield ""
    yield "| operators, GPU never seen | rows | median error | p90 | bias | roofline |"
    yield "|---|--:|--:|--:|--:|--:|"
    pooled: list[tuple[list[int], NDArray[np.float64]]] = []
    for name, chip in CHIPS.items():
        seen = [i for i in chosen if find_gpu(samples[i].gpu).chip != chip]
        out = [i for i, s in enumerate(samples) if not s.is_step and find_gpu(s.gpu).chip == chip]
        trainer.fit(seen, epochs=epochs)
        pooled.append((out, trainer.predicted(out, known=False)))
        yield _line(name, trainer, *pooled[-1])
    everything = [i for out, _ in pooled for i in out]
    yield _line("all five", trainer, everything, np.concatenate([found for _, found in pooled]))


def _line(name: str, trainer: Trainer, numbers: Sequence[int], predicted: NDArray[np.float64]) -> str:
    samples: Sequence[Sample] = trainer.samples
    floor = trainer.table.floor
    truth = np.array([samples[i].device_seconds for i in numbers])
    roofline = np.array(
        [sum(n * (floor.launch[j] + floor.seconds[j]) for j, n in trainer.table.members[i]) for i in numbers]
    )
    error = np.abs(predicted / truth - 1.0)
    return (
        f"| {name} | {len(truth):,} | {np.median(error):.1%} | {np.quantile(error, 0.9):.0%} "
        f"| {np.median(predicted / truth):.2f}x | {np.median(np.abs(roofline / truth - 1.0)):.0%} |"
    )


if __name__ == "__main__":
    main()
