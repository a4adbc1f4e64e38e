"""``placer validate --what-if``: the reference systems on GPUs that are not here, held against their accounts.

A row says what a step takes there, and from which batch on the GPU is ahead.
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
from placer.calibration.validation.accounts import host_profile
from placer.calibration.validation.cells import build_model, cell_workload
from placer.calibration.validation.elsewhere import priced_elsewhere
from placer.calibration.validation.record import Cell, Report, thread_count
from placer.calibration.validation.reference_rows import NOT_MEASURED, repaid_after
from placer.calibration.validation.table import Table
from placer.decision import ABOUT_THE_SAME, Decision, break_even_steps, decide, is_cpu
from placer.errors import CalibrationError, PlacerError
from placer.explanation import Explanation, Sweep, device_row
from placer.pricing import Prediction, gpu_profile
from placer.profile import Profile, find_gpu
from placer.tracing import Trace, trace_here
from placer.units import format_seconds

#: The GPU that is asked about beside the accounts' own where none is named: the usual one of free notebooks.
PRESENT = "Tesla T4"
#: A sweep goes to this batch at least.
LARGEST_BATCH = 4096
COLUMNS = (
    "system", "variant", "batch", "rows", "CPU predicted", "CPU measured", "GPU", "GPU predicted", "choice",
    "GPU speed-up", "GPU ahead from", "GPU repaid after", "reported", "as reported",
)  # fmt: skip


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
        self._traces: dict[int, Trace] = {}

    @cached_property
    def _model(self) -> nn.Module:
        return build_model(self.entry)

    def price(self, batch: int, hardware: Hardware) -> dict[str, Prediction]:
        """Predictions by device. Raises TraceError where there is no trace of such a batch."""
        data = self.entry.data or "host"
        traced = self._traced(batch)
        return {
            device: priced_elsewhere(traced, profile, device, hardware.threads, data)
            for device, profile in hardware.profiles.items()
        }

    def sweep(self, hardware: Hardware) -> Sweep:
        """Powers of two around the batch where the choice for a long run turns. It is taken to turn once.

        Raises TraceError where not one of them has a trace.
        """
        rows: dict[int, Explanation] = {}

        def choice(batch: int) -> str:
            if batch not in rows:
                rows[batch] = _explained(self.price(batch, hardware))
            return rows[batch].decision.device

        largest = max(LARGEST_BATCH, *self.entry.batches)
        sizes = [2**n for n in range(math.ceil(math.log2(largest)) + 1)]
        while len(sizes) > 1 and not self._has_trace(sizes[0]):  # some networks cannot train on a single row
            del sizes[0]
        low, high = 0, len(sizes) - 1
        first, last = choice(sizes[low]), choice(sizes[high])
        while first != last and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if choice(sizes[middle]) == first else (low, middle)
        return Sweep("batch", dict(sorted(rows.items())))

    def _has_trace(self, batch: int) -> bool:
        try:
            self._traced(batch)
        except PlacerError:
            return False
        return True

    def _traced(self, batch: int) -> Trace:
        if batch not in self._traces:
            cell = Cell(self.entry.name, self.entry.family, batch, self.entry.modes[0], "cpu", 1)
            self._traces[batch] = trace_here(cell_workload(self.entry, self._model, cell, self.entry.data or "host"))
        return self._traces[batch]


def _explained(predictions: Mapping[str, Prediction]) -> Explanation:
    """What a sweep asks of an explanation: the decision for a long run, and a row for each device."""
    rows = {name: device_row(prediction) for name, prediction in predictions.items()}
    return Explanation({}, decide(predictions, None), rows, (), ())


@dataclass(frozen=True)
class Decided:
    """A case of an account, decided for as many steps as the account ran; whether it ``agrees``: see ``agreement``."""

    entry: Reference
    case: Case
    agrees: str
    row: tuple[str, ...]


def what_if_tables(
    report: Report, profile: Profile, gpus: Sequence[str], say: Callable[[str], Any] = lambda _: None
) -> Iterator[Table | str]:
    """A table for each GPU and number of threads of the report, and below it how many claims come out as reported.

    Without ``gpus``: one on the accounts' own hardware, and one for ``PRESENT``. Raises UnknownGPU; CalibrationError
    where the report holds no reference system.
    """
    ran = {cell.network for cell in report.cells}
    steps = [Steps(entry) for entry in ENTRIES if entry.name in ran and not entry.missing()]
    if not steps:
        raise CalibrationError("--what-if prices the reference systems, and none was run: give --suite reference")
    if not gpus:
        say("the accounts' own hardware")
        title = "Reference systems on the hardware of their accounts (* stands in: the account names none)"
        yield from _table(title, [d for some in steps for d in _decided(some, _own_hardware(some.entry), {})])
    measured = {(c.network, c.batch, c.threads): c.measured for c in report.cells if c.device == "cpu"}
    for threads in dict.fromkeys(cell.threads for cell in report.cells if cell.device == "cpu"):
        for name in gpus or (PRESENT,):
            gpu = find_gpu(name).name
            say(f"{gpu}, {thread_count(threads)} of the CPU")
            hardware = Hardware(profile, threads, gpu)
            title = f"Reference systems on the CPU with {thread_count(threads)}, and on a {gpu} beside it"
            yield from _table(title, [d for some in steps for d in _decided(some, hardware, measured)])


def agreement(case: Case, decision: Decision) -> str:
    """Whether a case is decided as reported: yes, no, unsure (it is called about the same); ``-`` without a claim."""
    if not case.claim:
        return "-"
    found = "tie" if decision.tie else _winner(decision)
    return "yes" if found in case.claim else "unsure" if found == "tie" else "no"


def ahead_from(sweep: Sweep) -> str:
    """The batch from which on the GPU is ahead in a long run, between the two powers of two around it."""
    turns = sweep.crossovers()
    if len(turns) == 1:
        sizes = list(sweep.rows)
        return f"none to {sizes[-1]:,}" if is_cpu(turns[0][1]) else f"{sizes[0]:,}"
    value, device = turns[-1]
    size = sweep.turn(value) or value
    return f"below {size:,.0f}" if is_cpu(device) else f"{size:,.0f}"


def _own_hardware(entry: Reference) -> Hardware:
    host = hosts()[entry.cpu]
    return Hardware(host_profile(host), host.cores, find_gpu(entry.gpu).name, of_account=True)


def _decided(
    steps: Steps, hardware: Hardware, measured: dict[tuple[str, int, int], float | None]
) -> Iterator[Decided]:
    """The cases of an account, those without a trace left out: the report says why there is none."""
    entry = steps.entry
    try:
        swept = ahead_from(steps.sweep(hardware))
        for case in entry.cases:
            yield _decide(steps, case, hardware, swept, measured.get((entry.name, case.batch, hardware.threads)))
    except PlacerError:
        return


def _decide(steps: Steps, case: Case, hardware: Hardware, swept: str, measured: float | None) -> Decided:
    entry = steps.entry
    predictions = steps.price(case.batch, hardware)
    cpu, gpu = predictions.values()
    decision = decide(predictions, entry.steps(case))
    speedup = (decision.speedup or 1.0) if not is_cpu(decision.device) else 1.0 / (decision.speedup or 1.0)
    agrees = agreement(case, decision)
    row = (
        entry.system, entry.variant, f"{case.batch:,}", "-" if case.rows is None else f"{case.rows:,}",
        format_seconds(cpu.step_seconds), NOT_MEASURED if measured is None else format_seconds(measured),
        hardware.gpu + " *" * (hardware.of_account and not entry.names_gpu), format_seconds(gpu.step_seconds),
        _winner(decision) + f", {ABOUT_THE_SAME}" * decision.tie, f"{speedup:.2f}x", swept,
        repaid_after(entry, case, break_even_steps(gpu, cpu)), case.reported, agrees,
    )  # fmt: skip
    return Decided(entry, case, agrees, row)


def _winner(decision: Decision) -> str:
    return "CPU" if is_cpu(decision.device) else "GPU"


def _table(title: str, decided: Sequence[Decided]) -> Iterator[Table | str]:
    yield Table(title, COLUMNS, tuple(d.row for d in decided))
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
