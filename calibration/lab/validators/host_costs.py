"""Fits what each thing that a host does for a step on a GPU costs (``placer.pricing.framework``).

    python -m placer.calibration.lab.validators.host_costs RECORD...

prints the costs fitted to all folders of records (each with a ``measurements.json`` and a ``calibration.journal.xz``),
and how far off steps are on each record where they are fitted to the others' journals and to the others' cells of other
networks, at the pace that the record's own journal tells.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.calibration.fitting.accelerator import (
    LEAST_OF_STEP,
    catalog_gpu,
    host_pace,
    launch_and_wait,
    with_copies,
)
from placer.calibration.lab.suite import accelerator_entries, entries
from placer.calibration.measuring.journal import StepObservation
from placer.calibration.validation.cells import build_model, cell_workload
from placer.calibration.validation.compare import quantile
from placer.calibration.validation.record import Cell, load
from placer.calibration.validation.recorded import JOURNAL, MEASUREMENTS, PACKED, unpacked
from placer.pricing import CostModel, Work
from placer.pricing.framework import HOST_WORK, framework_seconds, host_framework, host_seconds
from placer.pricing.timeline import copy_seconds, waits_for_device
from placer.profile import Device
from placer.tracing import Trace, trace

Array = NDArray[np.float64]

#: Steps whose kernels take less than this share of them are the host's, and its least share of any step.
HOST_BOUND = 0.6
#: Weight of a calibration's generated network, and of its blocks of branches, beside that of a cell.
NETWORK_WEIGHT, BLOCK_WEIGHT = 0.5, 0.2
#: Rounds of the fit, and the relative error from which on an error counts by its size alone, not by its square.
ROUNDS, NEAR = 12, 0.05
#: Times that costs and paces are fitted in turns, and parts that the networks are left out in.
TURNS, FOLDS = 4, 6


@dataclass(frozen=True)
class Step:
    """One step: how often the host does each of ``HOST_WORK``, what it took without copies, and what its device took.

    ``network`` is "" of a step that a calibration generated. ``copies``: seconds of those of a cell.
    """

    network: str
    amounts: Array
    seconds: float
    device: float
    weight: float
    copies: float = 0.0


@dataclass(frozen=True)
class Measured:
    """One record: its steps, and those of its calibration with the fit without families to find a pace by."""

    name: str
    steps: tuple[Step, ...]
    observations: tuple[StepObservation, ...]
    fit: Device

    @property
    def networks(self) -> list[str]:
        return sorted({step.network for step in self.steps if step.network})

    def of_host(self, held: set[str]) -> list[Step]:
        """The steps whose device waited for its host, without those of networks in ``held``."""
        steps = [step for step in self.steps if step.network not in held]
        return [step for step in steps if step.device < HOST_BOUND * (step.seconds + step.copies)]


def amounts(works: Sequence[tuple[Work, int]], counts: Mapping[str, float]) -> Array:
    """How often a step's host does each of ``HOST_WORK``: its price where one alone takes a second."""
    found = []
    for name in HOST_WORK:
        framework = host_framework({other: float(other == name) for other in HOST_WORK})
        issued = sum(host_seconds(work, framework) * count for work, count in works)
        found.append(issued + framework_seconds(counts, framework))
    return np.array(found)


def read(folder: Path, traces: dict[tuple[str, int, str], Trace]) -> Measured:
    """One record; ``traces`` keeps the traces of cells for the next one."""
    with unpacked(folder / (JOURNAL + PACKED)) as (journal, fingerprint):
        device, threads = next(key for key in journal.rates if key[0] != "cpu")
        gpu = catalog_gpu(fingerprint, device)
        fit = Device(device, threads, with_copies(journal.rates[device, threads]), {}, {}, {}, gpu=gpu)
        observations = tuple(journal.of(device, threads))
    model = CostModel(fit)
    steps = [_generated(step, model) for step in observations if not _waits(step)]
    networks = {entry.name: entry for entry in (*entries("full"), *accelerator_entries()) if not entry.missing()}
    for cell in load(folder / MEASUREMENTS).cells:
        if cell.device != device or cell.measured is None or cell.network not in networks:
            continue
        key, entry = (cell.network, cell.batch, cell.mode), networks[cell.network]
        data = entry.data or "host"
        if key not in traces:
            traces[key] = trace(cell_workload(entry, build_model(entry), cell, data))
        steps.append(_cell(cell, cell.measured, traces[key].on(device), data == "device", model))
    return Measured(folder.name, tuple(steps), observations, fit)


def _waits(step: StepObservation) -> bool:
    return any(waits_for_device(op.op) or op.family == "linear_algebra" for op in step.ops)


def _generated(step: StepObservation, model: CostModel) -> Step:
    works = [(op.work(), op.count) for op in step.ops]
    priced, _, _ = model.price_works([work for work, _ in works])
    times = [op.seconds if op.seconds is not None else price for op, price in zip(step.ops, priced, strict=True)]
    device = sum(seconds * op.count for seconds, op in zip(times, step.ops, strict=True))
    seconds = max(step.seconds - launch_and_wait(model.fit), LEAST_OF_STEP * step.seconds)
    weight = NETWORK_WEIGHT if step.family == "network" else BLOCK_WEIGHT
    return Step("", amounts(works, step.counts), seconds, device, weight / step.seconds)


def _cell(cell: Cell, took: float, step: Trace, stays: bool, model: CostModel) -> Step:
    priced = model.price(step)
    copies = 0.0
    if not stays:
        copies += copy_seconds([t.stored_bytes for t in step.batch], model.fit.rates, "h2d", "pageable")
    if cell.mode == "infer":
        copies += copy_seconds([t.stored_bytes for t in step.outputs], model.fit.rates, "d2h", "pageable")
    seconds = max(took - copies, LEAST_OF_STEP * took)
    works = [(work, 1) for work in priced.works]
    return Step(cell.network, amounts(works, priced.counts), seconds, sum(priced.seconds), 1.0 / took, copies)


def fitted(records: Sequence[Sequence[Step]]) -> tuple[Array, list[float]]:
    """(the cost of each of ``HOST_WORK``, none below zero; the pace of each record, whose geometric mean is 1)."""
    paces = [1.0] * len(records)
    rows = np.array([step.amounts for step in chain.from_iterable(records)])
    costs: Array = np.zeros(len(HOST_WORK))
    for _ in range(TURNS):
        weights, targets = [], []
        for steps, pace in zip(records, paces, strict=True):
            weights += [step.weight * pace for step in steps]
            targets += [step.seconds * step.weight for step in steps]
        costs = _least_absolute(rows * np.array(weights)[:, None], np.array(targets))
        medians = []
        for steps in records:
            ratios = [step.seconds / max(float(step.amounts @ costs), 1e-9) for step in steps]
            medians.append(statistics.median(ratios))
        paces = [median / statistics.geometric_mean(medians) for median in medians]
    return costs, paces


def _least_absolute(rows: Array, targets: Array) -> Array:
    """Non-negative least absolute deviations, by least squares whose weights follow the errors."""
    reweighted = np.ones(len(targets))
    costs: Array = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        none_below_zero = LinearRegression(positive=True, fit_intercept=False)
        costs = none_below_zero.fit(rows * reweighted[:, None], targets * reweighted).coef_
        errors = np.abs(rows @ costs - targets)
        reweighted = 1.0 / np.sqrt(np.maximum(errors, NEAR) / NEAR)
    return costs


def left_out(record: Measured, others: Sequence[Measured]) -> tuple[list[float], float]:
    """(predicted over measured seconds of each cell by costs of the others' other networks, the pace that was told)."""
    ratios, paces = [], []
    for number in range(FOLDS):
        held = set(record.networks[number::FOLDS])
        costs, _ = fitted([other.of_host(held) for other in others])
        framework = host_framework(dict(zip(HOST_WORK, costs.tolist(), strict=True)))
        pace = host_pace(record.observations, record.fit, framework).factor
        paces.append(pace)
        for step in record.steps:
            if step.network in held:
                predicted = step.copies + max(pace * float(step.amounts @ costs), step.device)
                ratios.append(predicted / (step.seconds + step.copies))
    return ratios, statistics.median(paces)


def main(folders: Sequence[str]) -> None:
    """Print the costs, and the errors of each record without it."""
    traces: dict[tuple[str, int, str], Trace] = {}
    records = [read(Path(folder), traces) for folder in folders]
    costs, paces = fitted([record.of_host(set()) for record in records])
    for name, cost in zip(HOST_WORK, costs.tolist(), strict=True):
        print(f'    "{name}": {1e6 * cost:.3g}e-6,')
    for record, pace in zip(records, paces, strict=True):
        ratios, told = left_out(record, [other for other in records if other is not record])
        errors = [abs(ratio - 1.0) for ratio in ratios]
        print(
            f"{record.name}: pace {pace:.2f}, told {told:.2f}; {len(errors)} cells, left out: "
            f"{quantile(errors, 0.5):.1%} / {quantile(errors, 0.9):.1%}, from {min(ratios):.2f}x"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
