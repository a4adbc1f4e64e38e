"""Predictions held against published times of ops and of whole steps on CPUs of many cores and on Apple's chips.

Each row is traced as its source calls it, and priced by what is known of its CPU or GPU without a calibration. A
quarter of the cases, by a hash of their names, is shown apart: nothing may be chosen by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path

from placer.calibration.lab.published import trace_step
from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machine_steps import network_of
from placer.calibration.lab.published.machines import (
    MachineOp,
    MachineStep,
    is_held,
    profile_of,
    read_machine_ops,
    read_machine_steps,
)
from placer.calibration.lab.published.networks import identity
from placer.calibration.lab.validators.rows import (
    ERRORS,
    OP_ERRORS,
    Priced,
    errors,
    grouped,
    op_errors,
    price_each,
    report,
    tables,
)
from placer.calibration.validation.compare import group_by, quantile
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.pricing import Prediction, Residence, predict
from placer.pricing.framework import framework_seconds
from placer.profile import Device, Profile
from placer.tracing import Trace

#: Seconds of Python around a call inside a published time, by what the source's name begins with: the rows of torch's
#: operator benchmark that do nothing (``to`` of the same type) take 1.28 to 1.32 us on x86, 0.82 us on Arm.
HARNESS = {
    "pytorch operator_benchmark: x86": 1.3e-6,
    "pytorch operator_benchmark: aarch64": 0.82e-6,
}
#: Python functions that a step of one op enters here before the op, which the harness stands for.
ENTERED = 3.0
#: A published ratio of two devices from which on it is clear which is faster.
CLEAR = 2.0


@dataclass(frozen=True)
class PricedRow(Priced):
    """A published time of an op or of a whole step.

    ``family`` is that of an op's kernel that takes most of the price, "" of a step. ``held`` tells a case that nothing
    is chosen by.
    """

    row: MachineOp | MachineStep
    group: str
    family: str
    held: bool

    @property
    def table(self) -> str:
        """The machine and the day."""
        return f"{self.row.machine}, {self.row.device}, {self.row.date}"

    @property
    def network(self) -> str:
        """The network of a step, its batch and its machine."""
        assert isinstance(self.row, MachineStep)
        return f"{self.row.network.partition(',')[0][:60]}, batch {self.row.batch}, {self.group}"


def validate_machines(machines: str | Path, steps: int | None = None, output: Path | None = None) -> int:
    """Price all published ops and up to ``steps`` of the published steps, print and write the tables.

    Returns the exit code, which is 1 if not one row can be priced. Raises PlacerError where the published measurements
    are not in the folder ``machines``.
    """
    rows, left_out = read_machine_ops(Path(machines))
    for reason, count in left_out.most_common():
        say(f"{count} ops left out: {reason}")
    ops = list(price_ops(rows))
    whole = list(islice(price_machine_steps(read_machine_steps(Path(machines))), steps))
    return report([*ops, *whole], [*op_tables(ops), *step_tables(whole)], output)


def price_ops(rows: Sequence[MachineOp]) -> Iterator[PricedRow]:
    """Each row that can be mapped, priced; those that cannot are counted by reason in the last lines said."""
    traces: dict[str, Trace] = {}

    def price(row: MachineOp) -> PricedRow:
        if row.call not in traces:
            traces[row.call] = trace_call(row)
        return price_op(row, traces[row.call])

    return price_each(rows, price, "ops", every=500)


def price_machine_steps(rows: Sequence[MachineStep]) -> Iterator[PricedRow]:
    """Each step that can be built, priced; those that cannot are counted by reason in the last lines said."""
    traces: dict[str, Trace] = {}

    def price(row: MachineStep) -> PricedRow:
        step = network_of(row)
        if identity(step) not in traces:
            traces[identity(step)] = trace_step(step)
        price = _predicted(row, traces[identity(step)], profile_of(row))
        held = is_held(row.network)
        return PricedRow(row.seconds, price.step_seconds, price.low, price.high, row, step_group(row), "", held)

    return price_each(rows, price, "steps", every=500)


def _predicted(row: MachineOp | MachineStep, trace: Trace, profile: Profile) -> Prediction:
    """A step on a row's device, its data there. Raises UnknownGPU."""
    threads = profile.fits[0].threads if row.device == "cpu" else None
    elsewhere = Residence(here=False)
    found = predict(trace, profile, devices=[row.device], threads=threads, data="device", residence=elsewhere)
    return found[row.device]


def price_op(row: MachineOp, trace: Trace) -> PricedRow:
    """The price of what a row's source timed: on an accelerator with the wait for the result, which it asks for."""
    profile = profile_of(row)
    on_cpu = row.device == "cpu"
    if not on_cpu:
        trace = replace(trace, syncs=trace.syncs + 1)
    found = _predicted(row, trace, profile)
    fit = profile.fit(row.device, profile.fits[0].threads if on_cpu else 1)
    seconds = found.step_seconds + harness_seconds(row, trace, fit)
    by_family: defaultdict[str, float] = defaultdict(float)
    for family, share in zip(found.priced.families, found.priced.seconds, strict=True):
        by_family[family] += share
    family = max(by_family, key=by_family.__getitem__, default="none")
    factor = seconds / found.step_seconds
    low, high = factor * found.low, factor * found.high
    return PricedRow(row.seconds, seconds, low, high, row, op_group(row), family, is_held(row.name))


def harness_seconds(row: MachineOp, trace: Trace, fit: Device) -> float:
    """Seconds by which the source's loop takes longer than that of a step here; less where it is below 0."""
    own = next((seconds for name, seconds in HARNESS.items() if row.source.startswith(name)), None)
    if own is None:
        return 0.0
    python = min(ENTERED, trace.python_calls)
    return own - framework_seconds({"step": 1.0, "python_call": python}, fit.framework)


def op_group(row: MachineOp) -> str:
    """The kind of machine of an op's row, as in the tables."""
    if row.device != "cpu":
        return "MPS" if row.device == "mps" else "CUDA"
    if "Graviton" in row.machine:
        return "Arm, 16 cores"
    if row.machine.startswith("Apple"):
        return "Apple CPUs"
    return "x86, 24 cores" if row.threads == 24 else "other x86"


def step_group(row: MachineStep) -> str:
    """The kind of a step's row, as in the tables."""
    if "inductor CPU" not in row.source:
        return f"{row.machine}, {row.device}"
    if row.dtype.startswith("amp"):
        return "Xeon 8488C or 8375C, mixed precision"
    return f"Xeon 8375C, {row.threads} thread{'s' if row.threads > 1 else ''}"


def with_held_apart(priced: Sequence[PricedRow]) -> dict[str, Sequence[PricedRow]]:
    """The rows by group, and after each group those of it that are held out."""
    groups: dict[str, Sequence[PricedRow]] = {}
    for name, rows in grouped(priced, "group").items():
        groups[name] = rows
        groups[f"{name}, held out"] = [row for row in rows if row.held]
    return groups


def op_tables(priced: Sequence[PricedRow]) -> Iterator[Table | str]:
    """The ops: by group, with every fourth case apart, by family and machine, and who is faster."""
    timed = [p for p in priced if not _is_bound(p)]
    yield f"{len(timed)} published times of single ops; every fourth case, by its name, is held out."
    titles: dict[str, Mapping[str, Sequence[PricedRow]]] = {"Machines": with_held_apart(timed)}
    for name, rows in grouped(timed, "group").items():
        titles[name] = grouped(rows, "family")
    titles["Machine"] = grouped(timed, "table")
    yield from tables(titles, ("times", *OP_ERRORS), op_errors)
    yield ""
    yield from ratio_lines(priced)


def _is_bound(priced: PricedRow) -> bool:
    """Whether the source's clock saw less than ``measured``."""
    return isinstance(priced.row, MachineOp) and priced.row.is_bound


def step_tables(priced: Sequence[PricedRow]) -> Iterator[Table | str]:
    """The steps: by machine and threads, with every fourth network apart, and by network."""
    yield ""
    yield f"{len(priced)} published times of whole steps; every fourth network, by its name, is held out."
    titles: dict[str, Mapping[str, Sequence[PricedRow]]] = {"Steps": with_held_apart(priced)}
    titles["Network"] = grouped(priced, "network")
    yield from tables(titles, ("steps", *ERRORS, "median factor"), _step_figures)


def _step_figures(rows: Sequence[PricedRow]) -> tuple[str, ...]:
    factors = [max(row.predicted / row.measured, row.measured / row.predicted) for row in rows]
    return (*errors(rows), f"{quantile(factors, 0.5):.2f}x")


def ratio_lines(priced: Iterable[PricedRow]) -> Iterator[str]:
    """Of the same case on an accelerator and on its host's CPU: how many are said to be faster on the right one."""
    clear = [pair for pair in pairs(priced) if pair.is_clear]
    for device, some in sorted(group_by(clear, attrgetter("accelerator.row.device")).items()):
        held = _right([pair for pair in some if pair.accelerator.held])
        yield f"{device} / CPU, {CLEAR:g}x apart and more: {_right(some)} on the right side; held out: {held}"


def _right(pairs: Sequence[Pair]) -> str:
    right = sum(pair.is_right for pair in pairs)
    return f"{right} of {len(pairs)}" + (f" ({right / len(pairs):.1%})" if pairs else "")


@dataclass(frozen=True)
class Pair:
    """One case on an accelerator and on the CPU of the same table."""

    accelerator: PricedRow
    cpu: PricedRow

    @property
    def is_clear(self) -> bool:
        """Whether the published times differ enough; where the CPU's is a bound, only that it is faster is known."""
        ratio = self.accelerator.measured / self.cpu.measured
        return ratio >= CLEAR or (ratio <= 1.0 / CLEAR and not _is_bound(self.cpu))

    @property
    def is_right(self) -> bool:
        published = self.accelerator.measured > self.cpu.measured
        return published == (self.accelerator.predicted > self.cpu.predicted)


def pairs(priced: Iterable[PricedRow]) -> Iterator[Pair]:
    """The ops that an accelerator and its host's CPU have in one table."""
    ops = [p for p in priced if isinstance(p.row, MachineOp)]
    for rows in group_by(ops, _case).values():
        cpus = [p for p in rows if p.row.device == "cpu"]
        for p in rows:
            if p.row.device != "cpu":
                yield from (Pair(p, cpu) for cpu in cpus)


def _case(priced: PricedRow) -> tuple[str, str, str]:
    assert isinstance(priced.row, MachineOp)
    return priced.row.host, priced.row.date, priced.row.name
