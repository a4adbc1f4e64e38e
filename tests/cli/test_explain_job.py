"""``placer explain`` of a ``placer.Job``: its parts, and sweeps over a part or the repeats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
JOBS = """
import placer
from torch import nn
def rollouts():
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
    acting = placer.Part('acting', net, (8, 8), count=100, mode='infer')
    return placer.Job([acting, placer.Part('learning', net, (64, 8), count=10)], repeats=50)
"""
OWN = ("--profile", "amd-epyc-2-core", "--what-if", "T4")


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "jobs.py"
    path.write_text(JOBS)
    return f"{path}:rollouts"


def test_text_and_json(run: Run, job: str) -> None:
    text = run("explain", job, *OWN, "--full").stdout
    assert "Parts of the job" in text
    assert "Job: 100 × acting, 10 × learning; repeated 50 times." in text
    assert "What the job is made of" in text
    values = json.loads(run("explain", job, *OWN, "--format", "json").stdout)
    assert [part["name"] for part in values["parts"]] == ["acting", "learning"]
    total = values["devices"]["cpu"]
    assert total["total_seconds"] == pytest.approx(50 * total["step_seconds"] + total["one_time_seconds"])


def test_a_sweep_over_the_batch_of_a_part(run: Run, job: str) -> None:
    result = run("explain", job, *OWN, "--sweep", "learning.batch=16:65536")
    assert "Seconds of the job by batch size of learning" in result.stdout
    assert "cpu first; cuda@Tesla T4 from batch" in result.stdout.replace("about the same", "cuda@Tesla T4")


def test_a_sweep_over_the_count_of_a_part_and_over_repeats(run: Run, job: str) -> None:
    swept = json.loads(run("explain", job, *OWN, "--sweep", "acting.count=1:4", "--format", "json").stdout)
    assert (swept["sweep"], swept["part"]) == ("count", "acting")
    seconds = [row["devices"]["cpu"]["step_seconds"] for row in swept["rows"]]
    assert seconds[2] - seconds[1] == pytest.approx(2 * (seconds[1] - seconds[0]))
    swept = json.loads(run("explain", job, *OWN, "--sweep", "repeats=1:4", "--format", "json").stdout)
    assert [row["repeats"] for row in swept["rows"]] == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "8,8"), "--batch is for a single step; a Job says what to run in its parts"),
        (("--steps", "3"), "--steps is for a single step"),
        (("--sweep", "batch=1:4"), "over repeats, or batch or count of a part (PART.batch): acting, learning"),
        (("--sweep", "nothing.batch=1:4"), "the job has no part 'nothing'; it has: acting, learning"),
    ],
)
def test_what_does_not_fit_a_job_is_wrong_usage(run: Run, job: str, arguments: tuple[str, ...], message: str) -> None:
    result = run("explain", job, *OWN, *arguments, code=2)
    assert message in " ".join(result.stderr.split())
