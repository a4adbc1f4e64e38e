"""The script for a machine with an accelerator: its parts, what becomes of one that fails, and its files."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "calibration" / "records" / "measure_gpu.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules["measure_gpu"] = importlib.util.module_from_spec(spec)  # its dataclasses look themselves up
    spec.loader.exec_module(found)
    return found


def first(job: Any) -> None:
    """The first part."""


def second(job: Any) -> None:
    """The second part."""


def log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("error", [None, "RuntimeError: gone"])
def test_a_part_that_fails_costs_its_own_results_only(
    script: ModuleType, error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, float]] = []

    def run_part(name: str, job: Any, seconds: float) -> str | None:
        ran.append((name, seconds))
        return error if name == "first" else None

    monkeypatch.setattr(script, "run_part", run_part)
    job = script.Job(tmp_path, "sim", 110.0, clock=lambda: 0.0)
    assert script.run_parts(job, {first: 1.0, second: 3.0}) is (error is None)
    # The first took no time: what it left is the second's.
    assert ran == [("first", pytest.approx(25.0)), ("second", pytest.approx(105.0))]
    assert ["error" in line for line in log(tmp_path / "run.jsonl")] == [error is not None, False]
    assert not script.run_parts(script.Job(tmp_path / "late", "sim", 0.0, clock=lambda: 0.0), {first: 1.0})
    assert "no time was left" in log(tmp_path / "late" / "run.jsonl")[0]["error"]
