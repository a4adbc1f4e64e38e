"""Records that users shared, as data of the fits: ``calibration/records/*.json`` are found by themselves.

Steps on a GPU teach the networks of GPUs as published ones do. A CPU's calibration, at the pace of its steps, is one
more machine to the networks of CPUs, and gets its numbers anew with them: so the record is predicted by them, too.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.calibration.lab.published.table import PublishedStep
from placer.calibration.lab.suite import accelerator_entries, entries
from placer.calibration.suite import Entry
from placer.calibration.validation import record, sharing
from placer.calibration.validation.cells import build_model, cell_workload
from placer.calibration.validation.record import Cell, Report
from placer.errors import UnknownGPU
from placer.files import replace_file
from placer.pricing import Work, op_label
from placer.pricing.networks import cpu_network
from placer.pricing.physics import cpu_inputs
from placer.profile import Device, Profile, decode, encode, reported_gpu
from placer.tracing import Trace, trace

#: Where they lie, beside the folders of records that maintainers measured.
RECORDS = Path(__file__).parents[2] / "records"
#: How much an op counts by what a minute's calibration says of it, beside what machines measured at length say.
WEIGHT = 0.25
#: Ratio of the last visit to the first up to which a step tells something: beyond, the machine was busy.
STEADY = 1.3
#: Pace from which on steps and calibration are not of one machine in one state.
MOST_PACE = 2.0


def files(folder: Path = RECORDS) -> list[Path]:
    """The shared records in a folder, by name."""
    return sorted(folder.glob("*.json"))


def gpu_steps(paths: Sequence[Path]) -> Iterator[tuple[PublishedStep, Trace]]:
    """The steps on GPUs of the catalog that were shared, as published ones, each with its trace.

    Steps that do not repeat, networks that no fit may see and those that cannot be built here are left out. Raises
    CalibrationError for a damaged file.
    """
    networks = {entry.name: entry for entry in (*entries("full"), *accelerator_entries()) if not entry.missing()}
    traces: dict[tuple[str, int, str], Trace] = {}
    for path in paths:
        report = record.load(path)
        gpus = {str(facts["device"]): facts for facts in report.fingerprint["accelerators"]}
        for cell in report.cells:
            facts, entry = gpus.get(cell.device), networks.get(cell.network)
            if not cell.device.startswith("cuda") or facts is None or entry is None or not repeats(cell):
                continue
            try:
                gpu = reported_gpu(facts).name
            except UnknownGPU:
                continue
            key = cell.network, cell.batch, cell.mode
            if key not in traces:
                traces[key] = trace(cell_workload(entry, build_model(entry), cell, entry.data or "host"))
            yield _published(cell, entry, gpu, report, path.stem), traces[key]


def _published(cell: Cell, entry: Entry, gpu: str, report: Report, name: str) -> PublishedStep:
    """A cell as a row of the table of published steps."""
    assert cell.measured is not None
    dtype = "tf32" if report.fingerprint.get("tf32_matmul") else "float32"
    if entry.autocast is not None:
        dtype = f"amp-{str(entry.autocast).removeprefix('torch.')}"
    return PublishedStep(
        source=f"shared:{name}",
        gpu=gpu,
        network=cell.network,
        family=cell.family,
        builder="plain",
        arguments={},
        inputs=[],
        batch=cell.batch,
        dtype=dtype,
        conv_tf32=bool(report.fingerprint.get("tf32_convolution")),
        channels_last=False,
        mode="train" if cell.mode == "train" else "infer",
        optimizer=cell.optimizer,
        loss="",
        gradients="",
        data="device" if entry.data == "device" else "host",
        torch=str(report.fingerprint.get("torch", "")),
        seconds=cell.measured,
        compiled_seconds=None,
        use="fit",
    )


def calibrations(paths: Sequence[Path]) -> dict[Path, tuple[Report, Profile]]:
    """The shared records with their calibrations; what is of other networks in these is estimated, and tells no op.

    Raises CalibrationError for a damaged file.
    """
    found = {}
    for path in paths:
        report = record.load(path)
        profile = sharing.calibration_of(report, path)
        if profile is not None:
            found[path] = report, profile
    return found


def cpu_fits(shared: Mapping[Path, tuple[Report, Profile]]) -> dict[str, tuple[Device, float]]:
    """The CPUs that were calibrated, by name and threads, each with the pace of its steps (``pace``)."""
    found = {}
    for path, (report, profile) in shared.items():
        for fit in profile.fits:
            if fit.device == "cpu" and fit.families and not fit.estimated:
                found[f"{path.stem}@{fit.threads}"] = fit, pace(report, fit.threads)
    return found


def pace(report: Report, threads: int) -> float:
    """Measured over predicted steps of a CPU, in the median: how much slower than its calibration it was.

    Predictions are those of the day, by that calibration. 1 where fewer than half of the steps repeat, or where they
    contradict the calibration: something else ran, too.
    """
    cells = [cell for cell in report.cells if (cell.device, cell.threads) == ("cpu", threads) and cell.measured]
    steady = [cell for cell in cells if repeats(cell)]
    ratios = [cell.measured / cell.predicted for cell in steady if cell.measured and cell.predicted]
    if not ratios or len(steady) < len(cells) / 2:
        return 1.0
    found = statistics.median(ratios)
    return found if 1.0 / MOST_PACE <= found <= MOST_PACE else 1.0


def repeats(cell: Cell) -> bool:
    """Whether a step was measured, and took about as long on the last visit as on the first."""
    return cell.measured is not None and cell.repeatability is not None and cell.repeatability <= STEADY


def log_seconds(works: Sequence[Work], fit: Device, slower: float) -> NDArray[np.float32]:
    """log(seconds) of ops of one family by a calibration that is so much slower; nan of those that it does not know."""
    found = np.full(len(works), np.nan, dtype=np.float32)
    family = fit.families.get(works[0].family)
    network = cpu_network(works[0].family)
    if family is None or network is None:
        return found
    names = [op_label(work) for work in works]
    known = [i for i, name in enumerate(names) if name in family.offsets and name in network.labels]
    if known:
        physics, x = cpu_inputs([works[i] for i in known], fit)
        learnt = network.learnt(x, [names[i] for i in known], np.array(family.numbers))
        offsets = np.array([family.offsets[names[i]] for i in known])
        found[known] = np.log(physics * slower) + learnt + offsets
    return found


def write_fits(path: Path, fits: Mapping[str, Device]) -> None:
    """Put fits of its CPU, by name and threads, into a shared record, which stays as it is otherwise."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    profile = decode(json.dumps(document["calibration"]).encode(), str(path))
    on_cpu = [fits.get(f"{path.stem}@{fit.threads}", fit) for fit in profile.fits if fit.device == "cpu"]
    others = [fit for fit in profile.fits if fit.device != "cpu"]
    document["calibration"] = json.loads(encode(replace(profile, fits=(*on_cpu, *others))))
    replace_file(path, sharing.written(document))
