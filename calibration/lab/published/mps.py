"""Fits the constants of MPS to published times of isolated ops on Apple's GPUs, and prints them.

    python -m placer.calibration.lab.published.mps DIR

DIR is the folder of ``accelerator_ops.csv.gz``. A quarter of the cases and the chips ``HELD_CHIPS`` are left out, and
their errors printed beside those of the rest. Old versions of torch and macOS ran some ops several times slower, and in
the oldest tables the GPU was cold: by how much is fitted beside the constants, and not kept.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machines import MachineOp, gpu_name, is_held, read_machine_ops
from placer.errors import PlacerError
from placer.pricing import Work, describe_step
from placer.pricing.framework import host_seconds
from placer.pricing.gpu import FITTED, AppleModel, Array, Row, host_factor, mps_host, rows_of
from placer.profile import DataSheet, find_gpu

#: Chips that no constant is chosen by.
HELD_CHIPS = ("M3 Ultra", "M2 Max")
#: Dates until which tables are of torch 2.1 or 2.2, and from which on of 2.8 or later.
_OLD, _NEW = "2024-08", "2025-06"
#: Times by which old versions were slower, and new ones at sorting; seconds of a cold GPU on an M1's host.
_BESIDE = {"old/product": 4.0, "old/convolution": 2.0, "old/softmax": 1.6, "new/sorting": 5.0, "cold": 4e-4}
#: How far log(seconds) is off before a row counts less than squared, and what a constant costs that leaves its start.
_OUTLIER, _PRIOR = 0.2, 0.05


@dataclass(frozen=True)
class Sample:
    """A row, its chip, and the one op with kernels that it calls."""

    row: MachineOp
    sheet: DataSheet
    work: Work
    rows: tuple[Row, ...]

    @property
    def held(self) -> bool:
        """Whether nothing is chosen by it."""
        return is_held(self.row.name) or any(chip in self.row.machine for chip in HELD_CHIPS)

    @property
    def isolated(self) -> bool:
        """Whether the result was waited for after each call."""
        return not any("probably many calls" in note for note in self.row.notes)


def samples(folder: Path) -> Iterator[Sample]:
    """The rows of MPS that call one op. Raises PlacerError where there are none."""
    found, _ = read_machine_ops(folder)
    for row in found:
        if row.device != "mps":
            continue
        try:
            works = [work for work in describe_step(trace_call(row)) if work.family != "view"]
        except PlacerError:
            continue
        if len(works) == 1:
            yield Sample(row, find_gpu(gpu_name(row)), works[0], rows_of(works[0]))


def seconds(sample: Sample, constants: Mapping[str, float], beside: Mapping[str, float]) -> float:
    """What the row's call takes, with ``beside`` for its date; with none, with the versions of today."""
    model, work, row = AppleModel(sample.sheet, constants), sample.work, sample.row
    device = model.seconds(work, sample.rows)
    old = row.date < _OLD
    before_m3 = sample.sheet.architecture in ("apple7", "apple8")
    kind = "product" if work.family == "matmul" else work.family
    if old and (before_m3 or kind == "softmax"):
        device *= beside.get(f"old/{kind}", 1.0)
    if kind == "sorting" and row.date > _NEW:
        device *= beside.get("new/sorting", 1.0)
    if not sample.isolated:
        return device
    cold = any(note.startswith("mean of 5 processes") for note in row.notes)
    wait = constants["wait"] + (beside.get("cold", 0.0) if cold else 0.0)
    return device + host_factor(sample.sheet) * wait + host_seconds(work, mps_host(sample.sheet)[1])


def fit(chosen: Sequence[Sample]) -> dict[str, float]:
    """The constants, by least squares of log(seconds) with few outliers."""
    names, begin = (*FITTED, *_BESIDE), np.log([*FITTED.values(), *_BESIDE.values()])
    measured = np.log([sample.row.seconds for sample in chosen])

    def residuals(logs: Array) -> Array:
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        priced = np.log([seconds(sample, values, values) for sample in chosen])
        return np.concatenate([priced - measured, _PRIOR * (logs - begin)])

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=_OUTLIER)
    return dict(zip(names, np.exp(found.x).tolist(), strict=True))


def errors(rows: Sequence[Sample], constants: Mapping[str, float], beside: Mapping[str, float]) -> str:
    """Median error, standard deviation of the log, and the share within a factor of two."""
    logs = np.array([math.log(seconds(s, constants, beside) / s.row.seconds) for s in rows])
    off = np.abs(np.expm1(logs))
    return (
        f"median error {np.median(off):.0%}, deviation of the log {np.std(logs):.2f}, within a factor of 2 "
        f"{np.mean(np.abs(logs) <= math.log(2.0)):.0%}"
    )


def main(folder: Path) -> None:
    """Fit, and print constants and errors."""
    found = list(samples(folder))
    chosen, held = [s for s in found if not s.held], [s for s in found if s.held]
    constants = fit(chosen)
    for name, value in constants.items():
        print(f'"{name}": {value:.3g},')
    for name, rows in (("chosen by", chosen), ("held", held)):
        print(f"{len(rows)} rows {name}: {errors(rows, constants, {})}")
        print(f"    with the versions of their dates: {errors(rows, constants, constants)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
