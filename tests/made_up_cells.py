"""A profile without samples, a tiny network, a validation of it, and cells."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from placer import machine
from placer.calibration.suite import Entry
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render
from placer.calibration.validation.run import validate
from placer.profile.profile import Device, Profile


def profile(rate: float = 1e10, created: str = "2026-01-01T00:00:00+00:00", device: str = "cpu") -> Profile:
    """A profile without samples: every price is its physical floor."""
    rates = {"flops/float32": rate, "bytes_per_second": rate, "dispatch_seconds": 1e-6, "launch_seconds": 1e-6}
    fit = Device(device, 1, rates, {}, {}, {"base": 0.1, "ops": 1.0})
    return Profile(1, created, machine.fingerprint(), (fit,), {}, (), True, 1.0, name="hand-made")


def tiny(**changes: Any) -> Entry:
    made = Entry(
        "tiny",
        "mlp",
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)),
        lambda n: torch.randn(n, 4),
        (1, 64),
    )
    return replace(made, **changes)


def own_clock() -> float:
    """A clock that is not taken for the machine's own: nothing it times is left out, whoever disturbs this machine."""
    return time.perf_counter()


def measured(entry: Entry, **options: Any) -> Report:
    given = {"clock": own_clock, **options}
    return validate([entry], profile(), ["cpu"], rounds=3, time_limit_per_cell=0.02, **given)


def cell(
    network: str,
    device: str,
    predicted: float | None,
    measured: float | None,
    *,
    batch: int = 32,
    flops: float = 1.0,
    roofline: float | None = None,
) -> Cell:
    return Cell(
        network,
        "mlp",
        batch,
        "train",
        device,
        2,
        predicted=predicted,
        measured=measured,
        flops=flops,
        low=None if predicted is None else predicted * 0.8,
        high=None if predicted is None else predicted * 1.25,
        baselines={} if roofline is None else {"roofline": roofline},
    )


def text_of(report: Report, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    render(report, stream)
    return stream.getvalue()
