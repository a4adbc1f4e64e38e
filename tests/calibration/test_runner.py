"""The calibrate step for real, on a clock that stands still while other programs have the cores."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import placer
from placer import machine, profile
from placer.calibration import probing, runner
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.build import disturbance
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.journal import Journal, StepObservation, journal_file
from placer.calibration.progress import Progress
from placer.calibration.runner import calibrate

#: Counts what this process computes, in seconds: a busy machine takes no time from a budget.
CLOCK = time.process_time
#: Seconds that no machine needs for a dozen probes: an interrupt comes long before.
TIME_ENOUGH = 1e6


class Notes(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def with_rates(path: Path, known: profile.Profile) -> None:
    """The rates are there from another run: a calibration at ``path`` goes on with the probes."""
    journal = Journal(journal_file(path, machine.fingerprint()), machine.fingerprint())
    for fit in known.fits:
        journal.add_rates(fit.device, fit.threads, fit.rates, 0.0)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that is called as others call a lock, beside a file that is called as others call a journal."""
    path = tmp_path_factory.mktemp("calibrated") / "profile.lock"
    path.with_name("profile.journal").write_text("precious")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "OVERTIME", math.inf)  # until there is enough to fit, however slow the machine
        calibrate(budget=5.0, path=path, quick=True, progress=False, clock=CLOCK)
    return path


def test_a_quick_calibration_gives_a_profile_that_prices(measured: Path) -> None:
    found = profile.load(measured)
    assert found.complete
    assert found.devices()[0] == "cpu"
    assert found.fit("cpu").rates["flops/float32"] > found.fit("cpu").rates["bytes_per_second"] > 0
    assert {"matmul", "elementwise"} <= set(found.fit("cpu").families)
    placement = placer.choose(torch.nn.Linear(8, 8), (4, 8), profile=measured, devices=["cpu"], move=False)
    assert placement.predictions["cpu"].step_seconds > 0


@pytest.mark.parametrize("content", [b"# notes\n", b'{"schema": 4, "fingerprint": {}}\n'])
def test_a_file_that_is_no_profile_is_refused_before_anything_is_measured(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(placer.ProfileError, match=r"notes\.txt exists and is no profile.*name another file"):
        placer.calibrate(path=path, progress=False)
    assert path.read_bytes() == content
    with pytest.raises(placer.ProfileError, match="is not a file"):
        calibrate(path=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_run_measures_nothing_and_what_lies_beside_a_profile_is_the_users(measured: Path) -> None:
    shown, before, diary = Notes(), measured.read_bytes(), measured.with_name("profile.journal")
    calibrate(budget=5.0, path=measured, quick=True, progress=shown, clock=CLOCK)
    assert measured.read_bytes() == before
    assert any("already calibrated" in note for note in shown.notes)
    assert sorted(measured.parent.iterdir()) == [diary, measured]
    assert diary.read_text() == "precious"


def test_what_others_had_of_the_cores_is_kept_and_told_and_such_a_calibration_is_done_again(
    measured: Path, tmp_path: Path
) -> None:
    found, journal = profile.load(measured), tmp_path / "journal"
    assert found.noise[profile.OTHERS] == 0.0
    assert not found.disturbed
    for share, seconds in ((0.1, 10.0), (0.9, 30.0)):  # two runs, of which the first was interrupted
        Journal(journal, found.fingerprint).add_others(share, seconds)
    noise = {**found.noise, profile.OTHERS: Journal(journal, found.fingerprint).others_share() or 0.0}
    assert noise[profile.OTHERS] == pytest.approx(0.7)
    (warning,) = disturbance(noise)
    assert warning.startswith("other programs had 70% of the cores")
    assert disturbance(found.noise) == ()
    for known, again in ((found, False), (replace(found, noise=noise), True)):
        path = profile.save(known, tmp_path / "profile.json")
        assert (runner.finished(path, machine.fingerprint(), ("cpu",), 0.0) is None) == again


def test_an_interrupt_loses_nothing_and_the_next_run_goes_on(measured: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)  # for both runs: a journal is of a number of threads
    path, shown = tmp_path / "profile.journal", Notes()
    path.with_name("profile.lock").write_text("precious")
    rates = profile.load(measured)
    with_rates(path, replace(rates, fits=(replace(rates.fit("cpu"), threads=1),)))
    finished: list[str] = []
    measure = Bench.measure

    def interrupted(self: Bench, probe: Probe, *, seconds: float) -> StepObservation | None:
        if len(finished) == 9:
            raise KeyboardInterrupt
        found = measure(self, probe, seconds=seconds)
        finished.extend([probe.name] if found is not None else [])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "measure", interrupted)
        patch.setattr(runner, "QUICK_BUDGET", TIME_ENOUGH)
        first = calibrate(budget=TIME_ENOUGH, path=path, quick=True, progress=shown, clock=CLOCK)
    journal = journal_file(path, machine.fingerprint())
    assert [step.name for step in Journal(journal, machine.fingerprint()).observations] == finished
    assert (bool(first.fits), first.complete) == (True, False)
    assert any("interrupted" in note for note in shown.notes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "OVERTIME", math.inf)
        patch.setattr(runner, "QUICK_BUDGET", first.seconds + 2.0)
        second = calibrate(budget=TIME_ENOUGH, path=path, quick=True, progress=False, clock=CLOCK)
    assert second.complete
    assert second.seconds > first.seconds
    assert second.threads("cpu") == (1,)
    assert torch.get_num_threads() == 1
    assert not journal.exists()
    assert profile.load(path).created == second.created
    assert path.with_name("profile.lock").read_text() == "precious"


@pytest.mark.parametrize(("arguments", "message"), [({"budget": 0}, "above 0"), ({"devices": ["cuda:7"]}, "cuda:7")])
def test_wrong_arguments_say_what_is_accepted(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(path=tmp_path / "p.json", progress=False, **arguments)  # type: ignore[arg-type]


def test_a_clock_that_stands_still_ends_a_calibration_at_once(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(placer.TimerError, match="stands still"):
        calibrate(budget=5.0, path=path, progress=False, quick=True, clock=lambda: 5.0)
    with_rates(path, profile.load(measured))  # now every probe would fail without spending the budget
    with pytest.raises(placer.TimerError):
        calibrate(budget=5.0, path=path, progress=False, quick=True, clock=lambda: 5.0)
