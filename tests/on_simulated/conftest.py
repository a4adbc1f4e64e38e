"""What the tests on the simulated accelerator share. They are collected only where torch has loaded the device."""

from __future__ import annotations

import gc
import itertools
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from simulated import profiler
from simulated.clock import VirtualClock
from simulated.device import DEVICE, SimulatedDevice, machine_with
from simulated.entry_point import FLAG
from simulated.spec import SPEC

from placer.calibration import plan
from placer.calibration.measuring import bench, recording
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.runner import calibrate
from placer.pricing.framework import issued_as
from placer.profile.profile import Device, Profile

collect_ignore_glob = [] if os.environ.get(FLAG) else ["test_*.py"]

#: Seconds on the virtual clock: enough for a dozen probes of every family below.
BUDGET = 1.5
#: What is measured, and its share of the time. The other families would only take longer.
FAMILIES = {
    "network": 3.0, "matmul": 8.0, "elementwise": 3.0, "convolution": 3.0, "normalization": 2.0, "reduction": 2.0,
    "optimizer": 12.0,
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Nothing of a simulated device has to settle: for its virtual 10 ms, a thousand steps would run for real."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "WARM_UP", 0.0)
        yield


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    """The device as in a new process, on a virtual clock."""
    with DEVICE.on(VirtualClock()):
        DEVICE.forget_context()
        yield DEVICE


@pytest.fixture
def assemble() -> Iterator[Callable[..., Sequence[SimulatedDevice]]]:
    """Makes the devices of the process, one of each ``Spec`` it is called with, on a virtual clock."""
    with ExitStack() as stack:
        stack.enter_context(DEVICE.on(VirtualClock()))
        yield lambda *specs: stack.enter_context(machine_with(*specs))
        gc.collect()


@pytest.fixture
def recorder_shows_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder knows the device, and shows the kernels of those that are ``profiled``."""
    profiler.forget_sessions()
    monkeypatch.setattr(recording, "_session_numbers", itertools.count())
    monkeypatch.setattr(recording, "profile", profiler.Recorder)
    monkeypatch.setattr(torch.profiler, "supported_activities", profiler.supported_activities)


@dataclass(frozen=True)
class Calibrated:
    """What ``placer calibrate --device sim`` finds on a virtual clock, the same every time; and what it measured."""

    profile: Profile
    steps: list[StepObservation]


@pytest.fixture(scope="session")
def calibration_of_sim(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    path = tmp_path_factory.mktemp("calibrated") / "profile.json"
    torch.manual_seed(0)
    few = {name: (plan.PROPOSERS[name][0], weight) for name, weight in FAMILIES.items()}
    with DEVICE.on(VirtualClock()) as clock, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "PROPOSERS", few)
        DEVICE.forget_context()
        steps: list[StepObservation] = []
        close = Journal.close

        def keep(journal: Journal) -> None:
            steps.extend(journal.observations)
            close(journal)

        patch.setattr(Journal, "close", keep)
        found = calibrate(budget=BUDGET, devices=("sim",), path=path, progress=False, clock=clock)
    return Calibrated(found, steps)


@pytest.fixture(scope="session")
def calibrated_sim(calibration_of_sim: Calibrated) -> Profile:
    return calibration_of_sim.profile


@pytest.fixture
def with_its_host(calibration_of_sim: Calibrated) -> Profile:
    """The same, its host's costs as they are here: it runs no Python, which no real host is like."""
    (fit,) = calibration_of_sim.profile.fits
    seen: dict[str, list[float]] = {}
    for op in (op for step in calibration_of_sim.steps for op in step.ops if op.seconds):
        seen.setdefault(f"host/{issued_as(op.work())}", []).append(op.host_seconds)
    issue = {name: statistics.median(seconds) for name, seconds in seen.items()}
    framework = {"host": SPEC.issue, "host/view": SPEC.view, **issue}
    return replace(calibration_of_sim.profile, fits=(replace(fit, framework=framework),))


@pytest.fixture
def with_cpu(calibrated_sim: Profile) -> Profile:
    """The same beside a CPU whose costs are set by hand."""
    cpu = Device(
        "cpu",
        torch.get_num_threads(),
        {
            "dispatch_seconds": 2e-6,
            "flops/float32": 1e10,
            "bytes_per_second": 4e9,
        },
        {},
        {},
        {"base": 0.05, "ops": 0.0},
    )
    return replace(calibrated_sim, fits=(cpu, *calibrated_sim.fits))


@pytest.fixture
def profile_file(with_cpu: Profile, tmp_path: Path) -> Path:
    """That profile on disk."""
    from placer import profile

    return profile.save(with_cpu, tmp_path / "both.json")
