"""The run on a machine with an accelerator: its parts, what becomes of one that fails, and its files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.calibration import gpu_ops, gpu_run
from placer.calibration.gpu_run import PARTS, Job, Lines, read


def first(job: Job) -> None:
    """The first part."""


def second(job: Job) -> None:
    """The second part."""


def test_what_is_there_is_kept_and_not_asked_again_unless_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = Lines(path)
    lines.add({"op": "mm", "n": 2}, seconds=1.0)
    lines.add({"op": "mm", "n": 3}, error="no memory")
    with path.open("a") as file:
        file.write('{"of": {"op": "cut sh')
    again = Lines(path)
    assert {"n": 2, "op": "mm"} in again
    assert {"op": "mm", "n": 3} not in again
    assert [line["of"]["n"] for line in read(path)] == [2, 3]


def test_every_part_says_what_it_brings() -> None:
    assert all(part.__doc__ for part in PARTS)


@pytest.mark.parametrize("error", [None, "RuntimeError: gone"])
def test_a_part_that_fails_costs_its_own_results_only(
    error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, float]] = []

    def run_part(name: str, job: Job, seconds: float) -> str | None:
        ran.append((name, seconds))
        return error if name == "first" else None

    monkeypatch.setattr(gpu_run, "run_part", run_part)
    job = Job(tmp_path, "sim", time.perf_counter() + 110.0)
    parts: dict[Callable[[Job], None], float] = {first: 1.0, second: 3.0}
    assert gpu_run.run_parts(job, parts) is (error is None)
    assert [name for name, _ in ran] == ["first", "second"]
    # The first took no time: what it left is the second's.
    assert ran[0][1] == pytest.approx(25.0, abs=1.0)
    assert ran[1][1] == pytest.approx(105.0, abs=1.0)
    assert ["error" in line for line in read(tmp_path / "run.jsonl")] == [error is not None, False]


def test_no_part_is_begun_without_time(tmp_path: Path) -> None:
    assert not gpu_run.run_parts(Job(tmp_path, "sim", time.perf_counter()), {first: 1.0})
    assert "no time was left" in read(tmp_path / "run.jsonl")[0]["error"]


def test_there_is_nothing_to_run_without_an_accelerator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_run.machine, "accelerators", tuple)
    assert gpu_run.main([]) == 1
    assert "torch sees no accelerator here" in capsys.readouterr().err


def test_every_single_op_is_told_apart_and_the_first_case_of_each_comes_first() -> None:
    names = [name for name, _, _ in gpu_ops.cases()]
    count = len(gpu_ops.FUNCTIONS) + len(gpu_ops.LAYERS)
    assert set(names[:count]) == set(names)
    asked = [(name, shapes) for name, shapes, _ in gpu_ops.cases()]
    assert len(set(asked)) == len(asked)
