"""The rounds of fixed networks: when they are due, and what of them an interrupted run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.calibration.benchmarks.fixed import PACE, probes
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.measuring.pace import ROUND_SHARE, ROUNDS, PaceRounds

KEY = ("cuda", 2)
SECONDS = 10.0


class Time:
    """A clock that stands still but for what probes take."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()

    def measure_whole(self: Bench, probe: Probe) -> StepObservation:
        clock.now += 0.03
        return StepObservation(*KEY, PACE, probe.name, 1e-3, 0.0, {"step": 1.0}, ())

    monkeypatch.setattr(Bench, "measure_whole", measure_whole)
    return clock


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "p.journal", {})


def rounds_of(journal: Journal, time: Time) -> PaceRounds:
    return PaceRounds(Bench(*KEY, clock=time), journal, SECONDS)


def spent_up_to(journal: Journal, share: float) -> None:
    journal.seconds[KEY] = max(journal.seconds.get(KEY, 0.0), share * SECONDS)


def test_a_round_is_at_the_start_in_the_middle_and_near_the_end(journal: Journal, time: Time) -> None:
    rounds = rounds_of(journal, time)
    for number, share in enumerate(ROUNDS, 1):
        spent_up_to(journal, share)
        rounds.run_due()
        rounds.run_due()  # the next one is not due yet
        assert len(journal.of(*KEY)) == number * len(probes())
    spent_up_to(journal, 1.0)
    rounds.run_due()
    assert len(journal.of(*KEY)) == len(ROUNDS) * len(probes())


def test_the_next_run_goes_on_with_the_rounds_that_are_left(journal: Journal, time: Time) -> None:
    rounds_of(journal, time).run_due()
    again = Journal(journal.path, {})
    rounds_of(again, time).run_due()
    assert len(again.of(*KEY)) == len(probes())
    spent_up_to(again, ROUNDS[1])
    rounds_of(again, time).run_due()
    assert len(again.of(*KEY)) == 2 * len(probes())


def test_a_round_takes_no_more_than_its_share(journal: Journal, time: Time) -> None:
    rounds = PaceRounds(Bench(*KEY, clock=time), journal, seconds=1.0)
    rounds.run_due()
    assert 0 < len(journal.of(*KEY)) < len(probes())
    assert time.now < ROUND_SHARE + 0.06
