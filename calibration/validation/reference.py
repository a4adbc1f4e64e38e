"""The reference systems of a validation report: what was predicted, measured and chosen, beside what was reported.

With ``placer validate --what-if`` they are also priced on GPUs that are not here, and their accounts' own hardware. A
row then says what a step takes there, and from which batch on the GPU is ahead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.reference import ENTRIES, Case, Reference
from placer.calibration.validation.cells import build_model, cell_workload, priced_on
from placer.calibration.validation.record import Cell, Report, thread_count
from placer.calibration.validation.table import Table
from placer.decision import ABOUT_THE_SAME, TIE, Decision, Traced, break_even_steps, decide, is_cpu, traced_step
from placer.errors import CalibrationError, PlacerError
from placer.pricing import Prediction, gpu_profile
from placer.profile import Profile, find_gpu
from placer.tracing import trace_here
from placer.units import format_seconds

Row = tuple[str, ...]
CASE: Row = ("system", "variant", "batch", "rows")
COLUMNS: Row = (
    *CASE, "CPU predicted", "CPU measured", "GPU predicted", "GPU measured", "choice", "finished first", "right",
    "GPU repaid after", "reported", "as reported",
)  # fmt: skip
ELSEWHERE: Row = (
    *CASE, "CPU predicted", "CPU measured", "GPU", "GPU predicted", "choice", "GPU speed-up", "GPU ahead from",
    "GPU repaid after", "reported", "as reported",
)  # fmt: skip
NOT_MEASURED = "not measured"
NOT_PREDICTED = "not predicted"
#: The GPU that is asked about beside the accounts' own where none is named: the usual one of free notebooks.
PRESENT = "Tesla T4"
#: A sweep goes to this batch at least.
LARGEST_BATCH = 4096


def reference_tables(cells: Sequence[Cell]) -> Iterator[Table | str]:
    """A table for each number of CPU threads and accelerator of the report, and a line that counts.

    Times are seconds of a step. The choice is the one ``choose`` takes for as many steps as the account ran. What
    finished first is by measured steps and predicted one-time costs, and a tie where they are close. The choice is
    right if no device would have finished earlier by more than a tie; *as reported* compares what finished first here
    with the account's claim.
    """
    names = {entry.name for entry in ENTRIES}
    mine = [cell for cell in cells if cell.network in names]
    accelerators = list(dict.fromkeys(cell.device for cell in mine if cell.device != "cpu"))
    for threads in dict.fromkeys(cell.threads for cell in mine):
        found = {(cell.network, cell.batch, cell.device): cell for cell in mine if cell.threads == threads}
        for accelerator in accelerators or [""]:
            rows: list[Row] = []
            for entry in ENTRIES:
                for case in entry.cases:
                    cpu, gpu = (found.get((entry.name, case.batch, device)) for device in ("cpu", accelerator))
                    if cpu or gpu:
                        rows.append(_row(entry, case, cpu, gpu))
            beside = f" and {accelerator}" if accelerator else ""
            yield Table(f"Reference systems on the CPU with {thread_count(threads)}{beside}", COLUMNS, tuple(rows))
            if accelerator:
                yield _counted(rows)


def _counted(rows: Sequence[Row]) -> str:
    """How many choices are right, and how many clear claims hold, where both devices were measured."""
    verdicts, claims = (Counter(row[COLUMNS.index(name)] for row in rows) for name in ("right", "as reported"))
    clear = claims["yes"] + claims["tie"] + claims["no"]
    return (
        f"choices: {verdicts['right']} of {verdicts['right'] + verdicts['wrong']} right; the accounts' clear claims: "
        f"{claims['yes']} of {clear} hold here, {claims['tie']} came out as a tie, {claims['no']} the other way"
    )


def _row(entry: Reference, case: Case, cpu: Cell | None, gpu: Cell | None) -> Row:
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
    times = (*_times(cpu), *_times(gpu))
    return (*_case(entry, case), *times, choice, first, verdict, repaid, case.reported, _holds(case, first))


def _holds(case: Case, first: str) -> str:
    """Whether what finished first is what the account claims: yes, tie, no; ``-`` without a claim or a measurement.

    A claim that is not a clear one is marked so.
    """
    if not case.claim or first == "-":
        return "-"
    found = "yes" if first in case.claim else "tie" if first == "tie" else "no"
    return f"{found} (not clear)" if case.doubt else found


def _case(entry: Reference, case: Case) -> Row:
    return entry.system, entry.variant, f"{case.batch:,}", "-" if case.rows is None else f"{case.rows:,}"


def _times(cell: Cell | None) -> Row:
    predicted, measured = (None, None) if cell is None else (cell.predicted, cell.measured)
    return (
        NOT_PREDICTED if predicted is None else format_seconds(predicted),
        NOT_MEASURED if measured is None else format_seconds(measured),
    )


def _run_seconds(cells: Sequence[Cell], seconds: Sequence[float | None], steps: int | None) -> dict[str, float]:
    """Seconds of the account's run by device, given those of a step; of one step where the run is a long one.

    Empty where a device is without a time: ``choose`` would fall back to the conventional rule.
    """
    known: dict[str, float] = {}
    for cell, step in zip(cells, seconds, strict=True):
        if step is None:
            return {}
        known[cell.device] = step if steps is None else (cell.one_time_seconds or 0.0) + steps * step
    return known


def _repaid(entry: Reference, case: Case, steps: int | None) -> str:
    """After how many steps (None: never) the GPU is repaid, in words: as epochs where there is a data set."""
    if steps is None:
        return "never"
    if case.rows is None:
        return f"{steps:,} step{'' if steps == 1 else 's'}"
    epochs = math.ceil(steps / entry.steps_per_epoch(case))
    return f"{epochs:,} epoch{'' if epochs == 1 else 's'}"


@dataclass(frozen=True)
class Hardware:
    """A CPU with a number of threads, and the GPU of the catalog that it drives; ``of_account``: an account's."""

    cpu: Profile
    threads: int
    gpu: str
    of_account: bool = False

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """The profile of each device, the CPU's first. Raises UnknownGPU."""
        other = gpu_profile(self.gpu, self.cpu)
        return {"cpu": self.cpu, other.devices()[0]: other}


class Steps:
    """The steps of one reference system, each traced once."""

    def __init__(self, entry: Reference) -> None:
        self.entry = entry
        self._traces: dict[int, Traced] = {}

    @cached_property
    def _model(self) -> nn.Module:
        return build_model(self.entry)

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
        return {
            device: priced_on(traced, profile, device, hardware.threads)
            for device, profile in hardware.profiles.items()
        }

    def ahead_from(self, hardware: Hardware) -> str:
        """The batch from which on the GPU is ahead in a long run. The choice is taken to turn once.

        Powers of two are tried; between the two around the turn, the logarithm of the two times' ratio is interpolated
        over that of the batch. Raises TraceError where not one of them has a trace.
        """
        largest = max(LARGEST_BATCH, *self.entry.batches)
        sizes = [2**n for n in range(math.ceil(math.log2(largest)) + 1)]
        while len(sizes) > 1 and not self._has_trace(sizes[0]):  # some networks cannot train on a single row
            del sizes[0]
        low, high = 0, len(sizes) - 1
        first, last = (decide(self.price(sizes[end], hardware), None).device for end in (low, high))
        if first == last:
            return f"none to {sizes[-1]:,}" if is_cpu(last) else f"{sizes[0]:,}"
        while high - low > 1:
            middle = (low + high) // 2
            turned = decide(self.price(sizes[middle], hardware), None).device != first
            low, high = (low, middle) if turned else (middle, high)
        before, after = (self._log_ratio(sizes[end], hardware, first, last) for end in (low, high))
        turn = sizes[low] * (sizes[high] / sizes[low]) ** (before / (before - after)) if before < after else sizes[high]
        return f"below {turn:,.0f}" if is_cpu(last) else f"{turn:,.0f}"

    def _has_trace(self, batch: int) -> bool:
        try:
            self.trace(batch)
        except PlacerError:
            return False
        return True

    def _log_ratio(self, batch: int, hardware: Hardware, one: str, other: str) -> float:
        prices = self.price(batch, hardware)
        return math.log(prices[one].step_seconds / prices[other].step_seconds)


@dataclass(frozen=True)
class Decided:
    """A case of an account, decided for as many steps as the account ran; whether it ``agrees``: see ``agreement``."""

    entry: Reference
    case: Case
    agrees: str
    row: Row


def what_if_tables(
    report: Report, profile: Profile, gpus: Sequence[str], say: Callable[[str], Any] = lambda _: None
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
        yield from _table(title, [d for steps in systems for d in _decided(steps, _own_hardware(steps.entry), {})])
    measured = {(c.network, c.batch, c.threads): c.measured for c in report.cells if c.device == "cpu"}
    for threads in dict.fromkeys(cell.threads for cell in report.cells if cell.device == "cpu"):
        for name in gpus or (PRESENT,):
            gpu = find_gpu(name).name
            say(f"{gpu}, {thread_count(threads)} of the CPU")
            hardware = Hardware(profile, threads, gpu)
            title = f"Reference systems on the CPU with {thread_count(threads)}, and on a {gpu} beside it"
            yield from _table(title, [d for steps in systems for d in _decided(steps, hardware, measured)])


def _own_hardware(entry: Reference) -> Hardware:
    host = hosts()[entry.cpu]
    return Hardware(host.profile(), host.cores, find_gpu(entry.gpu).name, of_account=True)


def _decided(
    steps: Steps, hardware: Hardware, measured: Mapping[tuple[str, int, int], float | None]
) -> Iterator[Decided]:
    """The cases of an account, those without a trace left out: the report says why there is none."""
    entry = steps.entry
    gpu_name = hardware.gpu + " *" * (hardware.of_account and not entry.names_gpu)
    try:
        ahead = steps.ahead_from(hardware)
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
                _winner(decision) + f", {ABOUT_THE_SAME}" * decision.tie,
                f"{1.0 / speedup if is_cpu(decision.device) else speedup:.2f}x",
                ahead,
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
    found = "tie" if decision.tie else _winner(decision)
    return "yes" if found in case.claim else "unsure" if found == "tie" else "no"


def _winner(decision: Decision) -> str:
    return _side(decision.device)


def _side(device: str) -> str:
    return "CPU" if is_cpu(device) else "GPU"


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
