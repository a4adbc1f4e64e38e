"""The reference systems of a validation report: what was predicted, measured and chosen, beside what was reported.

With ``placer validate --what-if`` they are also priced on GPUs that are not here, and their accounts' own hardware. A
row then says what a step takes there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placer.calibration.lab.suite.accounts import hosts
from placer.calibration.lab.suite.reference import ENTRIES, Case, Reference
from placer.calibration.validation.cells import build_model, cell_workload, priced_on
from placer.calibration.validation.record import Cell, Report, thread_count
from placer.calibration.validation.run import silent
from placer.calibration.validation.table import Table
from placer.decision import ABOUT_THE_SAME, TIE, Decision, Traced, break_even_steps, decide, is_cpu, traced_step
from placer.errors import CalibrationError, PlacerError
from placer.pricing import Prediction, gpu_profile
from placer.profile import Profile, find_gpu
from placer.tracing import trace_here
from placer.units import format_seconds

Cells = tuple[str, ...]
CASE: Cells = ("system", "variant", "batch", "rows")
COLUMNS: Cells = (
    *CASE, "CPU predicted", "CPU measured", "GPU predicted", "GPU measured", "choice", "finished first", "right",
    "GPU repaid after", "reported", "as reported",
)  # fmt: skip
ELSEWHERE: Cells = (
    *CASE, "CPU predicted", "CPU measured", "GPU", "GPU predicted", "choice", "GPU speed-up",
    "GPU repaid after", "reported", "as reported",
)  # fmt: skip
NOT_MEASURED, NOT_PREDICTED = "not measured", "not predicted"
#: The GPU that is asked about beside the accounts' own where none is named: the usual one of free notebooks.
PRESENT = "Tesla T4"


def reference_tables(cells: Sequence[Cell]) -> Iterator[Table | str]:
    """A table for each number of CPU threads and accelerator of the report, and a line that counts.

    Times are seconds of a step. The choice is the one ``choose`` takes for as many steps as the account ran. What
    finished first is by measured steps and predicted one-time costs, and a tie where they are close. The choice is
    right if no device would have finished earlier by more than a tie; *as reported* compares what finished first here
    with the account's claim.
    """
    names = {entry.name for entry in ENTRIES}
    systems = [cell for cell in cells if cell.network in names]
    accelerators = list(dict.fromkeys(cell.device for cell in systems if cell.device != "cpu"))
    for threads in dict.fromkeys(cell.threads for cell in systems):
        there = {(cell.network, cell.batch, cell.device): cell for cell in systems if cell.threads == threads}
        for accelerator in accelerators or [""]:
            rows: list[Cells] = []
            for entry in ENTRIES:
                for case in entry.cases:
                    cpu, gpu = (there.get((entry.name, case.batch, device)) for device in ("cpu", accelerator))
                    if cpu or gpu:
                        rows.append(_row(entry, case, cpu, gpu))
            beside = f" and {accelerator}" if accelerator else ""
            yield Table(f"Reference systems on the CPU with {thread_count(threads)}{beside}", COLUMNS, tuple(rows))
            if accelerator:
                yield _counted(rows)


def _counted(rows: Sequence[Cells]) -> str:
    """How many choices are right, and how many clear claims hold, where both devices were measured."""
    verdicts = Counter(row[COLUMNS.index("right")] for row in rows)
    claims = Counter(row[COLUMNS.index("as reported")] for row in rows)
    clear = claims["yes"] + claims["tie"] + claims["no"]
    return (
        f"choices: {verdicts['right']} of {verdicts['right'] + verdicts['wrong']} right; the accounts' clear claims: "
        f"{claims['yes']} of {clear} hold here, {claims['tie']} came out as a tie, {claims['no']} the other way"
    )


def _row(entry: Reference, case: Case, cpu: Cell | None, gpu: Cell | None) -> Cells:
    steps = entry.steps(case)
    there = [cell for cell in (cpu, gpu) if cell is not None]
    predicted = _run_seconds(there, [cell.predicted for cell in there], steps)
    measured = _run_seconds(there, [cell.measured for cell in there], steps)
    choice = min(predicted, key=predicted.__getitem__) if predicted else "-"
    verdict = first = "-"
    if len(measured) > 1:
        close = max(measured.values()) <= min(measured.values()) * (1.0 + TIE)
        first = "tie" if close else _side(min(measured, key=measured.__getitem__))
        if predicted:
            verdict = "right" if close or first == _side(choice) else "wrong"
    repaid = "-"
    if cpu and gpu and cpu.predicted and gpu.predicted and gpu.one_time_seconds is not None:
        saved = cpu.predicted - gpu.predicted
        repaid = _repaid(entry, case, math.floor(gpu.one_time_seconds / saved) + 1 if saved > 0.0 else None)
    holds = "-"
    if case.claim and first != "-":  # a claim that is not a clear one is marked so
        holds = "yes" if first in case.claim else "tie" if first == "tie" else "no"
        holds += " (not clear)" * bool(case.doubt)
    times = (*_times(cpu), *_times(gpu))
    return (*_case(entry, case), *times, choice, first, verdict, repaid, case.reported, holds)


def _case(entry: Reference, case: Case) -> Cells:
    return entry.system, entry.variant, f"{case.batch:,}", "-" if case.rows is None else f"{case.rows:,}"


def _times(cell: Cell | None) -> Cells:
    predicted, measured = (None, None) if cell is None else (cell.predicted, cell.measured)
    return (
        NOT_PREDICTED if predicted is None else format_seconds(predicted),
        NOT_MEASURED if measured is None else format_seconds(measured),
    )


def _run_seconds(cells: Sequence[Cell], seconds: Sequence[float | None], steps: int | None) -> dict[str, float]:
    """Seconds of the account's run by device, given those of a step; of one step where the run is a long one.

    Empty where a device is without a time: ``choose`` would fall back to the conventional rule.
    """
    times: dict[str, float] = {}
    for cell, step in zip(cells, seconds, strict=True):
        if step is None:
            return {}
        times[cell.device] = step if steps is None else (cell.one_time_seconds or 0.0) + steps * step
    return times


def _repaid(entry: Reference, case: Case, steps: int | None) -> str:
    """After how many steps (None: never) the GPU is repaid, in words: as epochs where there is a data set."""
    if steps is None:
        return "never"
    if case.rows is None:
        return f"{steps:,} step{'' if steps == 1 else 's'}"
    epochs = math.ceil(steps / entry.steps_per_epoch(case))
    return f"{epochs:,} epoch{'' if epochs == 1 else 's'}"


def _side(device: str) -> str:
    return "CPU" if is_cpu(device) else "GPU"


@dataclass(frozen=True)
class Hardware:
    """A CPU with a number of threads, and the GPU of the catalog that it drives, with the profile of each device.

    The CPU's comes first. ``of_account``: it is an account's own.
    """

    threads: int
    gpu: str
    profiles: Mapping[str, Profile]
    of_account: bool = False

    @classmethod
    def of(cls, cpu: Profile, threads: int, gpu: str, *, of_account: bool = False) -> Hardware:
        """Raises UnknownGPU."""
        driven = gpu_profile(gpu, cpu)
        return cls(threads, find_gpu(gpu).name, {"cpu": cpu, driven.devices()[0]: driven}, of_account)


class Steps:
    """The steps of one reference system, each traced once."""

    def __init__(self, entry: Reference) -> None:
        self.entry = entry
        self._model = build_model(entry)
        self._traces: dict[int, Traced] = {}

    def trace(self, batch: int) -> Traced:
        """Raises TraceError where there is no trace of such a batch."""
        if batch not in self._traces:
            cell = Cell(self.entry.name, self.entry.family, batch, self.entry.modes[0], "cpu", 1)
            workload = cell_workload(self.entry, self._model, cell, self.entry.data or "host")
            self._traces[batch] = traced_step(workload, trace_here(workload))
        return self._traces[batch]

    def price(self, batch: int, hardware: Hardware) -> dict[str, Prediction]:
        """Predictions by device, the CPU's first. Raises TraceError."""
        traced = self.trace(batch)
        profiles = hardware.profiles.items()
        return {device: priced_on(traced, profile, device, hardware.threads) for device, profile in profiles}


@dataclass(frozen=True)
class Decided:
    """A case of an account, decided for as many steps as the account ran; whether it ``agrees``: see ``agreement``."""

    entry: Reference
    case: Case
    agrees: str
    row: Cells


def what_if_tables(
    report: Report, profile: Profile, gpus: Sequence[str], say: Callable[[str], Any] = silent
) -> Iterator[Table | str]:
    """A table for each GPU and number of threads of the report, and below it how many claims come out as reported.

    Without ``gpus``: one on the accounts' own hardware, and one for ``PRESENT``. Raises UnknownGPU; CalibrationError
    where the report holds no reference system.
    """
    ran = {cell.network for cell in report.cells}
    systems = [Steps(entry) for entry in ENTRIES if entry.name in ran and not entry.missing()]
    if not systems:
        raise CalibrationError("--what-if predicts the reference systems, and none was run: give --suite reference")
    if not gpus:
        say("the accounts' own hardware")
        title = "Reference systems on the hardware of their accounts (* stands in: the account names none)"
        decided: list[Decided] = []
        for steps in systems:
            host = hosts()[steps.entry.cpu]
            hardware = Hardware.of(host.profile(), host.cores, steps.entry.gpu, of_account=True)
            decided += _decided(steps, hardware, {})
        yield from _table(title, decided)
    measured = {(c.network, c.batch, c.threads): c.measured for c in report.cells if c.device == "cpu"}
    for threads in dict.fromkeys(cell.threads for cell in report.cells if cell.device == "cpu"):
        for name in gpus or (PRESENT,):
            hardware = Hardware.of(profile, threads, name)
            say(f"{hardware.gpu}, {thread_count(threads)} of the CPU")
            title = f"Reference systems on the CPU with {thread_count(threads)}, and on a {hardware.gpu} beside it"
            decided = []
            for steps in systems:
                decided += _decided(steps, hardware, measured)
            yield from _table(title, decided)


def _decided(
    steps: Steps, hardware: Hardware, measured: Mapping[tuple[str, int, int], float | None]
) -> Iterator[Decided]:
    """The cases of an account, those without a trace left out: the report says why there is none."""
    entry = steps.entry
    gpu_name = hardware.gpu + " *" * (hardware.of_account and not entry.names_gpu)
    try:
        for case in entry.cases:
            predictions = steps.price(case.batch, hardware)
            cpu, gpu = predictions.values()
            decision = decide(predictions, entry.steps(case))
            speedup = decision.speedup or 1.0
            on_cpu = measured.get((entry.name, case.batch, hardware.threads))
            agrees = agreement(case, decision)
            row = (
                *_case(entry, case),
                format_seconds(cpu.step_seconds),
                NOT_MEASURED if on_cpu is None else format_seconds(on_cpu),
                gpu_name,
                format_seconds(gpu.step_seconds),
                _side(decision.device) + f", {ABOUT_THE_SAME}" * decision.tie,
                f"{1.0 / speedup if is_cpu(decision.device) else speedup:.2f}x",
                _repaid(entry, case, break_even_steps(gpu, cpu)),
                case.reported,
                agrees,
            )
            yield Decided(entry, case, agrees, row)
    except PlacerError:
        return


def agreement(case: Case, decision: Decision) -> str:
    """Whether a case is decided as reported: yes, no, unsure (it is called about the same); ``-`` without a claim."""
    if not case.claim:
        return "-"
    winner = "tie" if decision.tie else _side(decision.device)
    return "yes" if winner in case.claim else "unsure" if winner == "tie" else "no"


def _table(title: str, decided: Sequence[Decided]) -> Iterator[Table | str]:
    yield Table(title, ELSEWHERE, tuple(d.row for d in decided))
    clear = [d for d in decided if d.case.claim and not d.case.doubt]
    count = Counter(d.agrees for d in clear)
    yield (
        f"clear claims: {count['yes']} of {len(clear)} decided as reported, {count['unsure']} called about the same, "
        f"{count['no']} decided otherwise"
    )
    for d in decided:
        if d.case.doubt and d.agrees != "yes":
            rows = "" if d.case.rows is None else f", {d.case.rows:,} rows"
            yield f"no clear claim: {d.entry.variant}, batch {d.case.batch:,}{rows}: {d.case.doubt}"
