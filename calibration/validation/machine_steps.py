"""Predictions held against published whole steps on CPUs of many cores and on Apple's chips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from placer.calibration.published import trace_step
from placer.calibration.published.machine_profiles import is_held, profile_of
from placer.calibration.published.machine_steps import MachineStep, network_of
from placer.calibration.published.networks import identity
from placer.calibration.validation.published_steps import buildable, error_figures
from placer.calibration.validation.scores import group_by
from placer.calibration.validation.table import markdown_by_group
from placer.pricing import Residence, predict
from placer.tracing import Trace


@dataclass(frozen=True)
class PricedMachineStep:
    """A published time of a step beside its price, in seconds; ``held`` tells a network that nothing is chosen by."""

    group: str
    source: str
    machine: str
    device: str
    host: str
    date: str
    threads: int
    network: str
    batch: int
    dtype: str
    measured: float
    predicted: float
    low: float
    high: float
    held: bool


def price_machine_steps(
    rows: Sequence[MachineStep], most: int | None = None, say: Callable[[str], Any] = lambda _: None
) -> Iterator[PricedMachineStep]:
    """Each step that can be built, ``most`` of them; those that cannot are counted by reason in the last lines said."""
    traces: dict[str, Trace] = {}

    def build(row: MachineStep) -> PricedMachineStep:
        step = network_of(row)
        if identity(step) not in traces:
            traces[identity(step)] = trace_step(step)
        return price_machine_step(row, traces[identity(step)])

    return islice(buildable(rows, build, "steps", say, every=500), most)


def price_machine_step(row: MachineStep, trace: Trace) -> PricedMachineStep:
    """The price of a row's step on its machine, its data on the device. Raises UnknownGPU."""
    profile = profile_of(row)
    threads = profile.fits[0].threads if row.device == "cpu" else None
    found = predict(
        trace, profile, devices=[row.device], threads=threads, data="device", residence=Residence(here=False)
    )[row.device]
    return PricedMachineStep(
        group_of(row), row.source, row.machine, row.device, row.host, row.date, row.threads, row.network, row.batch,
        row.dtype, row.seconds, found.step_seconds, found.low, found.high, is_held(row.network),
    )  # fmt: skip


def group_of(row: MachineStep) -> str:
    """The kind of row, as in the tables."""
    if "inductor CPU" not in row.source:
        return f"{row.machine}, {row.device}"
    if row.dtype.startswith("amp"):
        return "Xeon 8488C or 8375C, mixed precision"
    return f"Xeon 8375C, {row.threads} thread{'s' if row.threads > 1 else ''}"


def step_tables(priced: Sequence[PricedMachineStep]) -> Iterator[str]:
    """The result as Markdown: by machine and threads, with every fourth network apart, and by network."""
    yield ""
    yield f"{len(priced)} published times of whole steps; every fourth network, by its name, is held out."
    whole: dict[str, Sequence[PricedMachineStep]] = {}
    for name, group in sorted(group_by(priced, attrgetter("group")).items()):
        whole[name] = group
        whole[f"{name}, held out"] = [p for p in group if p.held]
    yield from _table("Steps", whole)
    by_network = group_by(priced, lambda p: f"{p.network.partition(',')[0][:60]}, batch {p.batch}, {p.group}")
    yield from _table("Network", dict(sorted(by_network.items())))


def _table(title: str, groups: Mapping[str, Sequence[PricedMachineStep]]) -> Iterator[str]:
    columns = (title, "steps", "median error", "p90", "bias", "in interval", "median factor")
    return markdown_by_group(columns, groups, _figures)


def _figures(group: Sequence[PricedMachineStep]) -> Iterator[str]:
    yield from error_figures(group)
    ratio = np.array([p.predicted / p.measured for p in group])
    yield f"{np.median(np.maximum(ratio, 1.0 / ratio)):.2f}x"
