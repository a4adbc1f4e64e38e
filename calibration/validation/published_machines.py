"""Predictions held against published times of single ops on machines that nobody here has: many cores, Apple's chips.

Each row is traced as its source calls it, and priced by what is known of its CPU or GPU without a calibration. A
quarter of the cases, by a hash of their names, is shown apart: nothing may be chosen by them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from placer.calibration.published.machine_calls import trace_call
from placer.calibration.published.machine_profiles import is_held, profile_of
from placer.calibration.published.machine_steps import read_machine_steps
from placer.calibration.published.machines import MachineOp, read_machine_ops
from placer.calibration.validation.machine_steps import price_machine_steps, step_tables
from placer.calibration.validation.published_steps import buildable, error_figures
from placer.calibration.validation.scores import group_by
from placer.calibration.validation.table import markdown_by_group, print_lines, write_lines
from placer.pricing import Residence, framework_seconds, predict
from placer.profile import DeviceFit
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
class PricedOp:
    """A published time of an op beside its price, in seconds.

    ``family`` is that of the kernel that takes most of the price. ``held`` tells a case that nothing is chosen by.
    ``is_bound``: the source's clock saw less than ``measured``.
    """

    group: str
    machine: str
    device: str
    host: str
    date: str
    threads: int
    name: str
    op: str
    phase: str
    dtype: str
    shapes: Mapping[str, Any]
    family: str
    measured: float
    predicted: float
    low: float
    high: float
    is_bound: bool
    held: bool


def validate_machines(
    folder: str | Path, *, steps: int | None = None, output: Path | None = None,
    say: Callable[[str], Any] = lambda _: None,
) -> int:  # fmt: skip
    """Price all published ops and up to ``steps`` of the published steps, print the tables, write a record.

    Returns the exit code, which is 1 if not one row can be priced. Raises PlacerError where the published measurements
    are not in ``folder``.
    """
    rows, left_out = read_machine_ops(Path(folder))
    for reason, count in left_out.most_common():
        say(f"{count} ops left out: {reason}")
    priced = list(price_ops(rows, say))
    whole = list(price_machine_steps(read_machine_steps(Path(folder)), steps, say))
    write_lines([json.dumps(asdict(each)) for each in priced] + [json.dumps(asdict(each)) for each in whole], output)
    print_lines([*tables(priced), *step_tables(whole)])
    return 0 if priced or whole else 1


def price_ops(rows: Sequence[MachineOp], say: Callable[[str], Any] = lambda _: None) -> Iterator[PricedOp]:
    """Each row that can be mapped, priced; those that cannot are counted by reason in the last lines said."""
    traces: dict[str, Trace] = {}

    def build(row: MachineOp) -> PricedOp:
        if row.call not in traces:
            traces[row.call] = trace_call(row)
        return price_op(row, traces[row.call])

    return buildable(rows, build, "ops", say, every=500)


def price_op(row: MachineOp, trace: Trace) -> PricedOp:
    """The price of what a row's source timed: on an accelerator with the wait for the result, which it asks for."""
    profile = profile_of(row)
    accelerated = row.device != "cpu"
    if accelerated:
        trace = replace(trace, syncs=trace.syncs + 1)
    threads = None if accelerated else profile.fits[0].threads
    found = predict(
        trace, profile, devices=[row.device], threads=threads, data="device", residence=Residence(here=False)
    )[row.device]
    seconds = found.step_seconds + harness_seconds(row, trace, profile.fit(row.device, threads or 1))
    by_family: defaultdict[str, float] = defaultdict(float)
    for family, share in zip(found.priced.families, found.priced.seconds, strict=True):
        by_family[family] += share
    return PricedOp(
        group_of(row), row.machine, row.device, row.host, row.date, row.threads, row.name, row.op, row.phase, row.dtype,
        row.shapes, max(by_family, key=by_family.__getitem__, default="none"), row.seconds, seconds,
        found.low * seconds / found.step_seconds, found.high * seconds / found.step_seconds, row.is_bound,
        is_held(row.name),
    )  # fmt: skip


def harness_seconds(row: MachineOp, trace: Trace, fit: DeviceFit) -> float:
    """Seconds by which the source's loop takes longer than that of a step here; less where it is below 0."""
    own = next((seconds for name, seconds in HARNESS.items() if row.source.startswith(name)), None)
    if own is None:
        return 0.0
    python = min(ENTERED, trace.python_calls)
    return own - framework_seconds({"step": 1.0, "python_call": python}, fit.framework)


def group_of(row: MachineOp) -> str:
    """The kind of machine of a row, as in the tables."""
    if row.device != "cpu":
        return "MPS" if row.device == "mps" else "CUDA"
    if "Graviton" in row.machine:
        return "Arm, 16 cores"
    if row.machine.startswith("Apple"):
        return "Apple CPUs"
    return "x86, 24 cores" if row.threads == 24 else "other x86"


def tables(priced: Sequence[PricedOp]) -> Iterator[str]:
    """The result as Markdown: by group, with every fourth case apart, by family and machine, and who is faster."""
    timed = [p for p in priced if not p.is_bound]
    yield f"{len(timed)} published times of single ops; every fourth case, by its name, is held out."
    groups = dict(sorted(group_by(timed, attrgetter("group")).items()))
    whole: dict[str, Sequence[PricedOp]] = {}
    for name, group in groups.items():
        whole[name] = group
        whole[f"{name}, held out"] = [p for p in group if p.held]
    yield from _table("Machines", whole)
    for name, group in groups.items():
        yield from _table(name, dict(sorted(group_by(group, attrgetter("family")).items())))
    by_machine = group_by(timed, lambda p: f"{p.machine}, {p.device}, {p.date}")
    yield from _table("Machine", dict(sorted(by_machine.items())))
    yield ""
    yield from ratio_lines(priced)


def _table(title: str, groups: Mapping[str, Sequence[PricedOp]]) -> Iterator[str]:
    columns = (title, "times", "median error", "p90", "bias", "in interval", "within 2x")
    return markdown_by_group(columns, groups, _figures)


def _figures(group: Sequence[PricedOp]) -> Iterator[str]:
    yield from error_figures(group)
    ratio = np.array([p.predicted / p.measured for p in group])
    yield f"{np.mean(np.maximum(ratio, 1.0 / ratio) <= 2.0):.0%}"


def ratio_lines(priced: Iterable[PricedOp]) -> Iterator[str]:
    """Of the same case on an accelerator and on its host's CPU: how many are said to be faster on the right one."""
    clear = [pair for pair in pairs(priced) if pair.is_clear]
    for device, group in sorted(group_by(clear, lambda pair: pair.accelerator.device).items()):
        held = _right(pair for pair in group if pair.accelerator.held)
        yield f"{device} / CPU, {CLEAR:g}x apart and more: {_right(group)} on the right side; held out: {held}"


def _right(group: Iterable[Pair]) -> str:
    pairs = list(group)
    right = sum(pair.is_right for pair in pairs)
    return f"{right} of {len(pairs)}" + (f" ({right / len(pairs):.1%})" if pairs else "")


@dataclass(frozen=True)
class Pair:
    """One case on an accelerator and on the CPU of the same table."""

    accelerator: PricedOp
    cpu: PricedOp

    @property
    def is_clear(self) -> bool:
        """Whether the published times differ enough; where the CPU's is a bound, only that it is faster is known."""
        ratio = self.accelerator.measured / self.cpu.measured
        return ratio >= CLEAR or (ratio <= 1.0 / CLEAR and not self.cpu.is_bound)

    @property
    def is_right(self) -> bool:
        published = self.accelerator.measured > self.cpu.measured
        return published == (self.accelerator.predicted > self.cpu.predicted)


def pairs(priced: Iterable[PricedOp]) -> Iterator[Pair]:
    """The cases that an accelerator and its host's CPU have in one table."""
    for group in group_by(priced, lambda p: (p.host, p.date, p.name)).values():
        cpus = [p for p in group if p.device == "cpu"]
        yield from (Pair(p, cpu) for p in group if p.device != "cpu" for cpu in cpus)
