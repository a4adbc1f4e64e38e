"""The CPU side: the steps of committed records and of held-out networks, priced with a mechanism switched off."""

from __future__ import annotations

import json
import lzma
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from placer import profile as profiles
from placer.calibration.ablation.mechanism import Mechanism, Outcome, is_wrong
from placer.calibration.build import build
from placer.calibration.fitting.measured_ops import OpTimes
from placer.calibration.fitting.refitting import own_points, recounted, refitted
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.suite import entries
from placer.calibration.validation import record
from placer.calibration.validation.cells import build_model, cell_workload
from placer.calibration.validation.grouping import group_by
from placer.calibration.validation.held_out import held_out_entries
from placer.errors import PlacerError
from placer.pricing import SETTLED, named_profile, predict
from placer.profile import Profile
from placer.tracing import Trace, trace
from placer.workload import Workload

#: The GPUs of the catalog that a choice is made against.
GPUS = ("Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4090")
#: What calibration measured, in the folder of a record.
JOURNAL = "calibration.journal.xz"


@dataclass(frozen=True)
class CpuMechanism(Mechanism):
    """A mechanism of the CPU side.

    ``redone`` says what its absence changes: prices alone; the fits, which are learnt anew from their own points; or
    calibration, which is done anew from what it measured. ``families`` are those that it concerns (None: all).
    ``counts`` are the framework's counts that it consists of.
    """

    redone: Literal["prices", "fits", "calibration"] = "prices"
    families: tuple[str, ...] | None = None
    counts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One measured step: its trace, the seconds it took, and the seconds it takes on each of ``GPUS``."""

    family: str
    trace: Trace
    measured: float
    threads: int
    on_gpus: tuple[float, ...]


@dataclass(frozen=True)
class Machine:
    """The steps of a record, and the profile of its machine; ``journal`` is what its calibration measured, if kept.

    ``held_out``: the steps are those of the held-out networks, not of the suite.
    """

    name: str
    profile: Profile
    steps: tuple[Step, ...]
    journal: Path | None
    held_out: bool

    @property
    def own_fits(self) -> Profile:
        """The profile with nothing but the fits that the steps are priced by."""
        used = {id(fit): fit for fit in (self.profile.fit("cpu", step.threads) for step in self.steps)}
        return replace(self.profile, fits=tuple(used.values()))


class Records:
    """All records of a folder, by name; networks that several of them measured are traced once."""

    def __init__(self, folder: Path) -> None:
        self._entries = {entry.name: entry for entry in (*entries("full"), *held_out_entries())}
        self._traced: dict[tuple[str, int, str], tuple[Trace, tuple[float, ...]] | None] = {}
        self._gpus = [named_profile(name, lambda: None) for name in GPUS]
        found = [self._machine(path) for path in sorted(folder.glob("*/measurements.json"))]
        found += [self._machine(path) for path in sorted(folder.glob("*/held_out.json"))]
        self.machines = [machine for machine in found if machine.steps]

    def _machine(self, path: Path) -> Machine:
        own = path.with_name("profile.json")
        profile = profiles.load(own if own.is_file() else path.with_name("reference_profile.json"), samples=False)
        steps: list[Step] = []
        for network, cells in group_by(record.load(path).cells, lambda cell: cell.network).items():
            entry = self._entries.get(network)
            if entry is None or entry.missing():
                continue
            data, model = entry.data or "host", build_model(entry)
            for cell in cells:
                key = cell.network, cell.batch, cell.mode
                if key not in self._traced:
                    self._traced[key] = self._trace(cell_workload(entry, model, cell, data))
                known = self._traced[key]
                if known is not None and cell.measured is not None:
                    steps.append(Step(cell.family, known[0], cell.measured, cell.threads, known[1]))
        journal = path.with_name(JOURNAL)
        held_out = path.name == "held_out.json"
        return Machine(path.parent.name, profile, tuple(steps), journal if journal.is_file() else None, held_out)

    def _trace(self, workload: Workload) -> tuple[Trace, tuple[float, ...]] | None:
        """The trace of a step, and its seconds on ``GPUS``; None where it cannot be traced."""
        try:
            found = trace(workload)
        except PlacerError:
            return None
        on_gpus = (predict(found, gpu, devices=("cuda",), data=workload.data)["cuda"] for gpu in self._gpus)
        return found, tuple(prediction.step_seconds for prediction in on_gpus)


def cpu_outcome(machines: Sequence[Machine], profiles_of: Mapping[str, Profile]) -> Outcome:
    """What the steps of ``machines`` come to, each priced by the profile of its machine's name."""
    errors, wrong = [], []
    for machine in machines:
        profile = profiles_of[machine.name]
        for step in machine.steps:
            found = predict(step.trace, profile, devices=("cpu",), threads=step.threads, heap=SETTLED)["cpu"]
            errors.append(math.log(found.step_seconds / step.measured))
            wrong += [float(is_wrong(found.step_seconds, step.measured, gpu)) for gpu in step.on_gpus]
    return Outcome(np.array(errors), np.array(wrong))


class Profiles:
    """The profile of a machine as it would be with all mechanisms, and without one, both made in the same way.

    ``steps`` of some calibration, by number of threads, show how often the
    framework's counts occur together.
    """

    def __init__(self, machine: Machine, steps: Mapping[int, Sequence[StepObservation]]) -> None:
        self._machine, self._steps, self._own = machine, steps, machine.own_fits
        self._known: dict[str, Profile] = {}

    @cached_property
    def _points(self) -> list[dict[str, OpTimes]]:
        return [own_points(fit) for fit in self._own.fits]

    def with_all(self, mechanism: CpuMechanism) -> Profile:
        """With all mechanisms; to be asked for while they are on."""
        how = "counts" if mechanism.counts else mechanism.redone
        if how not in self._known:
            self._known[how] = self._made(how, (), self._own)
        return self._known[how]

    def without(self, mechanism: CpuMechanism) -> Profile:
        """Without ``mechanism``; to be asked for while it is off, and after ``with_all``."""
        if mechanism.counts:
            return self._made("counts", mechanism.counts, self._own)
        return self._made(mechanism.redone, mechanism.families or (), self.with_all(mechanism))

    def _made(self, how: str, names: Sequence[str], start: Profile) -> Profile:
        """``names`` are the counts to leave out, or the families to fit anew (none: all)."""
        if how == "prices":
            return self._own
        if how == "calibration":
            assert self._machine.journal is not None
            with opened(self._machine.journal) as journal:
                return build(journal, self._machine.profile.fingerprint, interrupted=False, unaided=False)
        if how == "counts":
            return replace(start, fits=tuple(recounted(fit, names, self._steps[fit.threads]) for fit in start.fits))
        return replace(
            start,
            fits=tuple(
                refitted(fit, {name: times for name, times in points.items() if not names or name in names})
                for fit, points in zip(start.fits, self._points, strict=True)
            ),
        )


@contextmanager
def opened(path: Path) -> Iterator[Journal]:
    """The journal of a calibration that is kept compressed."""
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "calibration.journal"
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        with plain.open(encoding="utf-8") as file:
            head = json.loads(file.readline())
        yield Journal(plain, head["fingerprint"], existing=True)
