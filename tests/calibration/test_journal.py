"""What calibration measured survives a crash, and is not mistaken for another machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.calibration.journal import Journal
from placer.calibration.observation import OpObservation, StepObservation

HERE = {"cpu": "a", "cores": 2, "accelerators": []}
OP = OpObservation("matmul", "aten::mm", "float32", (1.0, 2.0, 3.0), 1.25e-6, 0.0, 0.1, 3)
MISSED = OpObservation("matmul", "aten::mm", "float32", (1.0, 2.0, 4.0), None, 0.0, 0.0, 1)


def observation(name: str, device: str = "cpu") -> StepObservation:
    return StepObservation(device, 2, "matmul", name, 1e-3, 0.02, {"step": 1.0}, (OP, MISSED), 1e-5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deeper" / "machine.journal"


def test_everything_comes_back(path: Path) -> None:
    first = Journal(path, HERE)
    first.add_rates("cpu", 2, {"bytes_per_second": 1e10}, 0.5)
    first.add(observation("a"), 0.25)
    first.add(observation("b", "cuda"), 1.0)
    again = Journal(path, HERE)
    assert again.observations == first.observations == [observation("a"), observation("b", "cuda")]
    assert again.rates == {("cpu", 2): {"bytes_per_second": 1e10}}
    assert again.seconds == {("cpu", 2): 0.75, ("cuda", 2): 1.0}
    assert again.of("cuda", 2) == [observation("b", "cuda")]
    assert again.of("cuda", 1) == []


def test_a_crash_in_the_middle_of_a_line_loses_that_line_only(path: Path) -> None:
    journal = Journal(path, HERE)
    journal.add(observation("a"), 0.25)
    journal.add(observation("b"), 0.25)
    whole = path.read_text()
    path.write_text(whole[:-40])
    crashed = Journal(path, HERE)
    assert [o.name for o in crashed.observations] == ["a"]
    crashed.add(observation("c"), 0.25)
    crashed.add(observation("d"), 0.25)
    assert [o.name for o in Journal(path, HERE).observations] == ["a", "c", "d"]


@pytest.mark.parametrize(
    "line", ["{}", "[]", "nonsense", '{"device": "cpu", "threads": 2, "step": {}, "took": 1}', "1"]
)
def test_a_damaged_line_is_dropped(path: Path, line: str) -> None:
    Journal(path, HERE).add(observation("a"), 0.25)
    with path.open("a") as file:
        file.write(line + "\n")
    assert [o.name for o in Journal(path, HERE).observations] == ["a"]


def test_another_machines_journal_is_not_resumed(path: Path) -> None:
    Journal(path, HERE).add(observation("a"), 0.25)
    other = Journal(path, {**HERE, "cores": 4})
    assert other.observations == []
    assert other.seconds == {}
    assert Journal(path, HERE).observations == []  # it was started anew


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"not json\n", b"{}\n"])
def test_a_file_that_is_no_journal_is_started_anew(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    journal = Journal(path, HERE)
    assert journal.observations == []
    journal.add(observation("a"), 0.25)
    assert Journal(path, HERE).observations == [observation("a")]


def test_closing_removes_the_file_once(path: Path) -> None:
    journal = Journal(path, HERE)
    journal.close()
    assert not path.exists()
    journal.close()
