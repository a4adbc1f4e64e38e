"""The calibrate step for real, with a budget of a few seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import placer
from placer import machine, profile
from placer.calibration import runner
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.build import noise_warnings
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.health import BrokenDeviceError
from placer.calibration.measuring.interference import Load
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.kernel_recorder import KernelRecorder
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.calibration.progress import Progress, silent
from placer.calibration.runner import calibrate
from placer.calibration.target import Target, one_of_each, targets

pytestmark = pytest.mark.serial
#: Seconds in which a machine measures more than a dozen probes, however busy it is: an interrupt comes long before.
TIME_ENOUGH = 15.0


@pytest.mark.parametrize(
    "error", [RuntimeError("no kernel image"), TypeError("float64"), torch.OutOfMemoryError("full"), ValueError("gone"),
              torch.cuda.DeferredCudaCallError("lazy"), BrokenDeviceError("RuntimeError: illegal memory access")],
)  # fmt: skip
def test_an_accelerators_error_ends_its_own_target_only(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others share the time that it leaves."""
    measured: list[tuple[str, float]] = []

    def start(target: Target, *_: object) -> KernelRecorder:
        if target.device == "cuda":
            raise error
        return KernelRecorder(sees=True)

    def measure(target: Target, seconds: float, *_: object, recorder: KernelRecorder | None, **__: object) -> None:
        measured.append((target.device, seconds))
        if target.device == "cuda:1":
            raise error

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "measure", measure)
    monkeypatch.setattr(runner, "release", lambda device: None)
    journal = Journal(tmp_path / "p.journal", {})
    journal.add_broken("cuda:2", "it was busy in the last run")
    wanted = targets(("cpu", "cuda", "cuda:1", "cuda:2"), quick=True)
    runner.measure_all(wanted, 9.0, journal, silent(), time.perf_counter)
    assert measured == [("cpu", 3.0), ("cuda:1", 3.0), ("cuda:2", 3.0)]
    assert set(journal.broken) == {"cuda", "cuda:1"}
    assert journal.broken["cuda"].endswith(str(error))


@pytest.mark.parametrize("error", [RuntimeError("a defect"), placer.TimerError("stands still")])
def test_the_cpus_errors_go_through(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(runner, "measure", measure)
    with pytest.raises(type(error)):
        runner.measure_all(targets(("cpu",), True), 1.0, Journal(tmp_path / "j", {}), silent(), time.perf_counter)


def test_one_accelerator_of_each_kind_is_measured() -> None:
    def listed(*kinds: tuple[str, int]) -> list[dict[str, object]]:
        names = ("cuda", *(f"cuda:{n}" for n in range(1, len(kinds))))
        return [{"device": d, "name": n, "memory_bytes": m} for d, (n, m) in zip(names, kinds, strict=True)]

    mixed = listed(("H100", 80), ("L4", 24), ("H100", 80), ("H100", 40), ("L4", 24))
    devices = ("cpu", "cuda", "cuda:1", "cuda:2", "cuda:3", "cuda:4")
    assert one_of_each(devices, mixed) == ("cpu", "cuda", "cuda:1", "cuda:3")
    assert one_of_each(("cuda:2", "cuda:4"), mixed) == ("cuda:2", "cuda:4")
    twins = one_of_each(devices, listed(*[("H100", 80)] * 5))
    assert [(target.device, target.share) for target in targets(twins, quick=True)] == [("cpu", 0.5), ("cuda", 0.5)]


class Notes(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def with_rates(path: Path, known: profile.Profile) -> None:
    """The rates are there from another run: a calibration at ``path`` goes on with the probes."""
    journal = Journal(path.with_suffix(".journal"), machine.fingerprint())
    for fit in known.fits:
        journal.add_rates(fit.device, fit.threads, fit.rates, 0.0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "profile.json"
    calibrate(budget=5.0, path=path, quick=True, progress=False)
    return path


def test_a_quick_calibration_gives_a_profile_that_prices(measured: Path) -> None:
    found = profile.load(measured)
    assert found.complete
    assert found.devices()[0] == "cpu"
    assert found.fit("cpu").rates["flops/float32"] > found.fit("cpu").rates["bytes_per_second"] > 0
    assert {"matmul", "elementwise"} <= set(found.fit("cpu").families)
    assert found.fit("cpu").rates[USUAL_READING] > 0
    assert 0 <= found.noise["left_out"] < 1
    assert not measured.with_suffix(".journal").exists()


def test_a_second_run_measures_nothing(measured: Path) -> None:
    shown = Notes()
    before = measured.read_bytes()
    again = calibrate(budget=5.0, path=measured, quick=True, progress=shown)
    assert again.created == profile.load(measured).created
    assert measured.read_bytes() == before
    assert any("already calibrated" in note for note in shown.notes)


def test_pricing_with_it_needs_no_scikit_learn(measured: Path) -> None:
    code = (
        "import sys, torch, placer; "
        f"p = placer.choose(torch.nn.Linear(8, 8), (4, 8), profile={str(measured)!r}, devices=['cpu']); "
        "assert p.device == 'cpu' and p.predictions['cpu'].step_seconds > 0; "
        "assert 'sklearn' not in sys.modules and 'rich' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_loses_nothing_and_the_next_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.json"
    calls = 0
    measure = Bench.measure

    def interrupted(self: Bench, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 12:  # more than are needed: what another program disturbs does not count
            raise KeyboardInterrupt
        return measure(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "measure", interrupted)
    monkeypatch.setattr(runner, "QUICK_BUDGET", TIME_ENOUGH)
    shown = Notes()
    first = calibrate(budget=TIME_ENOUGH, path=path, quick=True, progress=shown)
    assert not first.complete
    assert first.samples
    assert any("interrupted" in note for note in shown.notes)
    assert path.with_suffix(".journal").exists()
    monkeypatch.setattr(Bench, "measure", measure)
    monkeypatch.setattr(runner, "QUICK_BUDGET", first.seconds + 3.0)
    second = calibrate(budget=TIME_ENOUGH, path=path, quick=True, progress=False)
    assert second.complete
    assert second.seconds > first.seconds
    assert not path.with_suffix(".journal").exists()


def test_threads_are_given_back(measured: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    calibrate(budget=5.0, path=tmp_path / "one.json", quick=True, progress=False)
    assert torch.get_num_threads() == 1
    assert profile.load(tmp_path / "one.json").threads("cpu") == (1,)


@pytest.mark.parametrize(("arguments", "message"), [({"budget": 0}, "above 0"), ({"devices": ["cuda:7"]}, "cuda:7")])
def test_wrong_arguments_say_what_is_accepted(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(path=tmp_path / "p.json", progress=False, **arguments)  # type: ignore[arg-type]


def test_a_contended_machine_is_marked_in_the_profile_it_writes(
    handmade_profile: profile.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, done = Bench.measure, 0

    def contended(self: Bench, probe: Probe, *, seconds: float) -> StepObservation | None:
        nonlocal done
        if done == 10:
            raise KeyboardInterrupt
        found = measure(self, probe, seconds=seconds)
        done += found is not None
        return None if found is None else replace(found, spread=0.4)

    monkeypatch.setattr(Bench, "measure", contended)
    monkeypatch.setattr(Load, "disturbed_since", lambda *_: False)
    path = tmp_path / "p.json"
    with_rates(path, handmade_profile)
    calibrate(budget=20.0, devices=["cpu"], path=path, progress=False, unaided=True)  # ends after ten probes
    assert profile.load(path).warnings[0] == noise_warnings(0.4)[0]


def test_a_clock_that_stands_still_ends_a_calibration_at_once(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(placer.TimerError, match="stands still"):
        calibrate(budget=5.0, path=path, progress=False, quick=True, clock=lambda: 5.0)
    with_rates(path, profile.load(measured))  # now every probe would fail without spending the budget
    with pytest.raises(placer.TimerError):
        calibrate(budget=5.0, path=path, progress=False, quick=True, clock=lambda: 5.0)


def test_an_interrupt_keeps_every_finished_point(
    handmade_profile: profile.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "profile.json"
    with_rates(path, handmade_profile)
    finished: list[str] = []
    measure = Bench.measure

    def interrupted(self: Bench, probe: Probe, *, seconds: float) -> StepObservation | None:
        if len(finished) == 9:
            raise KeyboardInterrupt
        found = measure(self, probe, seconds=seconds)
        finished.extend([probe.name] if found is not None else [])
        return found

    monkeypatch.setattr(Bench, "measure", interrupted)
    monkeypatch.setattr(Load, "disturbed_since", lambda *_: False)  # else some are thrown away on purpose
    monkeypatch.setattr(runner, "QUICK_BUDGET", TIME_ENOUGH)
    calibrate(budget=TIME_ENOUGH, path=path, quick=True, progress=False)
    kept = Journal(path.with_suffix(".journal"), machine.fingerprint())
    assert [o.name for o in kept.observations] == finished
