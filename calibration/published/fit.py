"""``make published DATA=folder``: fits everything that ships about GPUs nobody here owns, and says how good it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from placer.calibration.published.numbers_file import document, sources
from placer.calibration.published.ops import read_ops
from placer.calibration.published.samples import Sample, Table, fitted_to, op_samples, step_samples
from placer.calibration.published.selection import chosen_steps
from placer.calibration.published.steps import read_steps
from placer.calibration.published.training import EPOCHS, Trainer
from placer.pricing.gpu import FILE

#: Where counted steps are kept between runs.
CACHE = Path("build/published")


def main(data: Path, cache: Path = CACHE, epochs: int = EPOCHS) -> None:
    """Read, fit and write the numbers that ship; print what went in and how the rest is met."""
    torch.set_num_threads(min(torch.get_num_threads(), 2))
    samples = read_samples(data, cache)
    trainer = Trainer(samples, Table(samples))
    chosen = fit_to(samples)
    print(f"fitting to {len(chosen):,} of {len(samples):,} samples", file=sys.stderr)
    trainer.fit(chosen, epochs=epochs)
    sigma = spread(trainer)
    FILE.write_text(document(trainer, chosen, sigma), encoding="utf-8")
    for source, rows in sources(samples, chosen).items():
        print(f"{rows:8,} rows of {source}")
    print(f"{FILE}: {FILE.stat().st_size / 1e6:.2f} MB")


def read_samples(data: Path, cache: Path) -> list[Sample]:
    """All published operators and steps that can be described; reasons for the others go to stderr."""
    ops, left_out = read_ops(data)
    found = op_samples(ops)
    steps, reasons = step_samples(list(chosen_steps(read_steps(data)[0])), cache)
    for reason, rows in (left_out + reasons).most_common():
        print(f"{rows:8,} rows left out: {reason}", file=sys.stderr)
    return [*found, *steps]


def fit_to(samples: Sequence[Sample]) -> list[int]:
    """Numbers of the samples that are fitted to: licensed, not held out, and bound by the device."""
    return [
        i for i, s in enumerate(samples)
        if not s.held_out and not s.held_out_gpu and s.device_bound and not (s.step and fitted_to(s.step))
    ]  # fmt: skip


def spread(trainer: Trainer) -> dict[str, tuple[float, float]]:
    """Standard deviation of log(seconds) by kind, on operators held out: with the GPU's own numbers, and without.

    A GPU that was never published is further off than one whose numbers are only hidden: by half as much again.
    """
    found = {}
    ops = [i for i, s in enumerate(trainer.samples) if s.held_out and not s.is_step]
    for kind in trainer.kinds:
        own = [i for i in ops if all(trainer.table.instances[j][0].kind == kind for j, _ in trainer.table.members[i])]
        if len(own) < 50:
            found[kind] = (0.3, 0.45)
            continue
        truth = np.array([trainer.samples[i].device_seconds for i in own])
        known, hidden = (
            float(np.quantile(np.abs(np.log(trainer.predicted(own, known=k) / truth)), 0.9) / 1.645)
            for k in (True, False)
        )
        found[kind] = (known, 1.5 * hidden)
    return found
