"""``placer validate --what-if``: the reference systems on GPUs that are not here, held against their accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placer.calibration.suite.reference import ENTRIES, Case, Reference
from placer.calibration.suite.reference.account import Outcome
from placer.calibration.validation.accounts_pricing import host_profile
from placer.calibration.validation.record import Report, thread_count
from placer.calibration.validation.reference_gpus import Hardware, Steps
from placer.calibration.validation.reference_rows import NOT_MEASURED, repaid_after
from placer.calibration.validation.table import Table
from placer.decision import ABOUT_THE_SAME, Decision, break_even_steps, decide, is_cpu
from placer.errors import CalibrationError, PlacerError
from placer.explanation import Sweep
from placer.profile import Profile, find_gpu
from placer.units import format_seconds

#: The GPU that is asked about beside the accounts' own where none is named: the usual one of free notebooks.
PRESENT = "Tesla T4"
COLUMNS = (
    "system", "variant", "batch", "rows", "CPU predicted", "CPU measured", "GPU", "GPU predicted", "choice",
    "GPU speed-up", "GPU ahead from", "GPU repaid after", "reported", "as reported",
)  # fmt: skip


@dataclass(frozen=True)
class Decided:
    """A case of an account, decided on some hardware: ``decision`` is for as many steps as the account ran."""

    entry: Reference
    case: Case
    decision: Decision
    row: tuple[str, ...]

    @property
    def agrees(self) -> str:
        """Whether it is decided as reported (see ``agreement``)."""
        return agreement(self.case, self.decision)


def what_if_tables(
    report: Report, profile: Profile, gpus: Sequence[str], say: Callable[[str], Any] = lambda _: None
) -> Iterator[Table | str]:
    """A table for each GPU and number of threads of the report, and below it how many claims come out as reported.

    Without ``gpus``: one on the accounts' own hardware, and one for ``PRESENT``. Raises UnknownGPU; CalibrationError
    where the report holds no reference system.
    """
    ran = {cell.network for cell in report.cells}
    entries = [entry for entry in ENTRIES if entry.name in ran and not entry.missing()]
    if not entries:
        raise CalibrationError("--what-if prices the reference systems, and none was run: give --suite reference")
    measured = {(c.network, c.batch, c.threads): c.measured for c in report.cells if c.device == "cpu"}
    steps = {entry.name: Steps(entry) for entry in entries}
    if not gpus:
        say("the accounts' own hardware")
        title = "Reference systems on the hardware of their accounts (* stands in: the account names none)"
        yield from _table(title, [
            decided for entry in entries for decided in _decided(steps[entry.name], _own_hardware(entry), {})
        ])  # fmt: skip
    for threads in dict.fromkeys(cell.threads for cell in report.cells if cell.device == "cpu"):
        for name in gpus or (PRESENT,):
            sheet = find_gpu(name)
            say(f"{sheet.name}, {thread_count(threads)} of the CPU")
            hardware = Hardware("", profile, threads, sheet.name)
            title = f"Reference systems on the CPU with {thread_count(threads)}, and on a {sheet.name} beside it"
            yield from _table(title, [
                decided for entry in entries for decided in _decided(steps[entry.name], hardware, measured)
            ])  # fmt: skip


def outcome(decision: Decision) -> Outcome:
    """Who finishes first."""
    return "tie" if decision.tie else "CPU" if is_cpu(decision.device) else "GPU"


def agreement(case: Case, decision: Decision) -> str:
    """Whether a case is decided as reported: yes, no, unsure (it is called about the same); ``-`` without a claim."""
    found = outcome(decision)
    if not case.claim:
        return "-"
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
    return Hardware(entry.cpu.name, host_profile(entry.cpu), entry.cpu.cores, find_gpu(entry.gpu).name)


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
    cpu, gpu = predictions["cpu"], predictions[hardware.accelerator]
    count = entry.steps(case)
    decision = decide(predictions, count)
    speedup = (decision.speedup or 1.0) if not is_cpu(decision.device) else 1.0 / (decision.speedup or 1.0)
    row = (
        entry.system, entry.variant, f"{case.batch:,}", "-" if case.rows is None else f"{case.rows:,}",
        format_seconds(cpu.step_seconds), NOT_MEASURED if measured is None else format_seconds(measured),
        _card(entry, hardware), format_seconds(gpu.step_seconds),
        _choice(decision), f"{speedup:.2f}x", swept,
        repaid_after(entry, case, break_even_steps(gpu, cpu)), case.reported, agreement(case, decision),
    )  # fmt: skip
    return Decided(entry, case, decision, row)


def _choice(decision: Decision) -> str:
    device = "CPU" if is_cpu(decision.device) else "GPU"
    return f"{device}, {ABOUT_THE_SAME}" if decision.tie else device


def _card(entry: Reference, hardware: Hardware) -> str:
    stands_in = bool(hardware.title) and not entry.names_gpu
    return hardware.gpu + (" *" if stands_in else "")


def _table(title: str, decided: Sequence[Decided]) -> Iterator[Table | str]:
    yield Table(title, COLUMNS, tuple(d.row for d in decided))
    clear = [d for d in decided if d.case.claim and not d.case.doubt]
    count = {word: sum(d.agrees == word for d in clear) for word in ("yes", "unsure", "no")}
    yield (
        f"clear claims: {count['yes']} of {len(clear)} decided as reported, {count['unsure']} called about the same, "
        f"{count['no']} decided otherwise"
    )
    for d in decided:
        if d.case.doubt and d.agrees != "yes":
            rows = "" if d.case.rows is None else f", {d.case.rows:,} rows"
            yield f"no clear claim: {d.entry.variant}, batch {d.case.batch:,}{rows}: {d.case.doubt}"
