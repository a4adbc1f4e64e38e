"""Models, and profiles made by hand in which one of the two kinds of device is far the faster one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from simulated.device import SimulatedDevice
from torch import nn

from placer import machine
from placer.profile.profile import SCHEMA, Device, Profile

#: Makes the devices of the process, one of each ``Spec`` it is called with.
Assemble = Callable[..., Sequence[SimulatedDevice]]


def faster_on(fast: str) -> Profile:
    slow_cpu, slow_sim = (3e-3, 1e-6) if fast == "sim" else (1e-6, 3e-3)
    cpu = {"dispatch_seconds": slow_cpu, "flops/float32": 1e10, "bytes_per_second": 1e10}
    sim = {
        "dispatch_seconds": slow_sim, "flops/float32": 1e11, "bytes_per_second": 1e11, "launch_seconds": slow_sim,
        "issue_seconds": slow_sim, "sync_seconds": 1e-6, "context_seconds": 1e-3, "first_call_seconds": 1e-6,
        "copy/h2d/pageable/bytes_per_second": 1e8, "copy/h2d/pageable/seconds_per_tensor": 1e-5,
        "copy/h2d/pinned/bytes_per_second": 1e10, "copy/h2d/pinned/seconds_per_tensor": 1e-6,
        "copy/d2h/pageable/bytes_per_second": 1e8, "copy/d2h/pageable/seconds_per_tensor": 1e-5,
    }  # fmt: skip
    width = {"base": 0.05, "ops": 0.0}
    fits = Device("cpu", torch.get_num_threads(), cpu, {}, {}, width), Device("sim", 1, sim, {}, {}, width)
    return Profile(
        schema=SCHEMA,
        created="2026-01-02T03:04:05+00:00",
        fingerprint=machine.fingerprint(),
        fits=fits,
        noise={},
        warnings=(),
        complete=True,
        seconds=10.0,
    )


def large() -> nn.Module:
    """Pays on the accelerator in large batches."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def devices_of(model: nn.Module) -> set[str]:
    """The kinds of device that its parameters and buffers are on."""
    return {tensor.device.type for tensor in (*model.parameters(), *model.buffers())}
