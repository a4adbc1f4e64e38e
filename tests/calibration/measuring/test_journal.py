"""What calibration measured survives a crash, and is not mistaken for another machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.calibration.measuring.journal import Failure, Journal, OpObservation, StepObservation, journal_file
from placer.errors import CalibrationError
from placer.pricing.work import feature_names

HERE = {"cpu": "a", "cores": 2, "accelerators": []}
THERE = {**HERE, "cores": 4}
FEATURES = tuple(float(n) for n in range(2 + len(feature_names("matmul"))))
OP = OpObservation("matmul", "aten::mm", "float32", FEATURES, 1.25e-6, 0.0, 0.1, 3)
MISSED = OpObservation("matmul", "aten::mm", "float32", FEATURES[::-1], None, 0.0, 0.0, 1)


def observation(name: str, device: str = "cpu") -> StepObservation:
    return StepObservation(device, 2, "matmul", name, 1e-3, 0.02, {"step": 1.0}, (OP, MISSED), {"forward": -1e-6})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deeper" / "machine.journal"


def names(path: Path, fingerprint: object = HERE) -> list[str]:
    """What a journal that is opened again holds."""
    return [o.name for o in Journal(path, fingerprint).observations]  # type: ignore[arg-type]


def test_everything_comes_back(path: Path) -> None:
    failure = Failure("cpu", 2, "matmul", "p", "it did not fit in memory")
    first = Journal(path, HERE)
    first.add_rates("cpu", 2, {"bytes_per_second": 1e10}, 0.5)
    first.starting("cpu", 2, "matmul", "p")
    first.add_failure(failure)
    first.starting("cpu", 2, "matmul", "a")
    first.add(observation("a"), 0.25)
    first.use_timer("cuda", 2, "recorder")
    first.add(observation("b", "cuda"), 1.0)
    first.use_timer("cuda", 2, "recorder")
    first.add_broken("cuda", "RuntimeError: an illegal memory access was encountered")
    again = Journal(path, HERE)
    assert again.observations == first.observations == [observation("a"), observation("b", "cuda")]
    assert again.rates == {("cpu", 2): {"bytes_per_second": 1e10}}
    assert again.seconds == {("cpu", 2): 0.75, ("cuda", 2): 1.0}
    assert again.of("cuda", 2) == [observation("b", "cuda")]
    assert again.of("cuda", 1) == []
    assert again.failures == [failure]
    assert again.attempts("cpu", 2) == 2
    assert again.timers == {("cuda", 2): "recorder"}
    assert again.broken == {"cuda": "RuntimeError: an illegal memory access was encountered"}
    again.close()
    assert not path.exists()
    again.close()


def test_a_crash_in_the_middle_of_a_line_loses_that_line_only(path: Path) -> None:
    journal = Journal(path, HERE)
    journal.add(observation("a"), 0.25)
    journal.add(observation("b"), 0.25)
    path.write_text(path.read_text()[:-40])
    crashed = Journal(path, HERE)
    assert [o.name for o in crashed.observations] == ["a"]
    crashed.add(observation("c"), 0.25)
    crashed.add(observation("d"), 0.25)
    assert names(path) == ["a", "c", "d"]


#: A line as it is written, with one value that nobody writes; and lines that nobody writes.
WRONG = [
    ("1.25e-06", "NaN"), ("1.25e-06", "1e999"), ("1.25e-06", '"fast"'), ('"count": 3', '"count": 0'),
    ('"family": "matmul", "op"', '"family": "none", "op"'), ('"took": 0.25', '"took": -1'), ("[0.0, ", "["),
    ('"threads": 2', '"threads": 2.5'), ('"spread"', '"surprise"'), ('"cpu"', '"\\u001b[2J"'),
]  # fmt: skip
DAMAGED = ("{}", "[]", "nonsense", "1", "[" * 100_000, '{"failed": 3}', '{"starting": {}}', '{"rates": {"a": -1}}')


def test_a_damaged_line_is_dropped(path: Path) -> None:
    journal = Journal(path, HERE)
    journal.add(observation("a"), 0.5)
    journal.add(observation("b"), 0.25)
    head, first, second = path.read_text().splitlines()
    assert all(right in second for right, _ in WRONG)
    lines = [second.replace(right, wrong) for right, wrong in WRONG]
    path.write_text("\n".join((head, first, *lines, *DAMAGED)) + "\n")
    again = Journal(path, HERE)
    assert [o.name for o in again.observations] == ["a"]
    assert (again.rates, again.failures, again.seconds) == ({}, [], {("cpu", 2): 0.5})


def test_another_machines_journal_lies_in_another_file_and_is_never_overwritten(path: Path) -> None:
    assert journal_file(path, HERE) != journal_file(path, THERE)
    Journal(path, HERE).add(observation("a"), 0.25)
    for existing in (True, False):
        with pytest.raises(CalibrationError, match="no journal of this machine"):
            Journal(path, THERE, existing=existing)
    assert names(path) == ["a"]
    path.write_text(path.read_text().replace('{"version": 4,', '{"version": 3,', 1))
    with pytest.raises(CalibrationError, match="has journal format 3, and this version of placer reads format 4"):
        Journal(path, HERE)


def test_what_another_timer_showed_is_forgotten(path: Path) -> None:
    journal = Journal(path, HERE)
    for name, device in (("a", "cpu"), ("b", "cuda")):
        journal.add(observation(name, device), 0.25)
    journal.use_timer("cuda", 2, "waiting")
    journal.add(observation("c", "cuda"), 0.25)
    for found in (journal, Journal(path, HERE)):
        assert [o.name for o in found.observations] == ["a", "c"]
        assert found.seconds == {("cpu", 2): 0.25, ("cuda", 2): 0.25}


def test_a_full_disk_is_one_error_with_the_remedy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(path, HERE)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(CalibrationError, match=r"No space left on device.*PLACER_HOME"):
        journal.add(observation("a"), 0.25)
