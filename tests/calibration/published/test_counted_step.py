"""Steps as counted rows, and the folder that keeps them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from torch import nn

from placer.calibration.published import counted_step, networks
from placer.calibration.published.counted_step import CountedStep, count, counted
from placer.calibration.published.networks import NotBuilt
from placer.calibration.published.steps import PublishedStep
from placer.pricing import describe_step
from placer.tracing import Trace, trace
from placer.workload import make_workload

from .synthetic import published_step


def model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)), nn.ReLU(), nn.ReLU())


def traced(mode: str = "train") -> Trace:
    return trace(make_workload(model(), (4, 8), mode=mode))


def test_rows_are_counted() -> None:
    found = count(traced("infer"))
    assert {row.label: n for row, n in found.rows} == {"matmul:addmm": 5, "elementwise:relu": 2}
    assert (found.forward_ops, found.backward_ops, found.batch_bytes) == (7, 0, 4 * 4 * 8)


def test_nothing_is_lost_in_a_training_step() -> None:
    step = traced()
    found = count(step)
    works = [work for work in describe_step(step) if work.family != "view"]
    assert sum(n for _, n in found.rows) == len(works)
    assert sum(n * row.columns[0] for row, n in found.rows) == pytest.approx(sum(work.flops for work in works))
    assert found.backward_ops >= 2 * 5
    assert found.forward_ops > count(traced("infer")).forward_ops


def test_what_was_counted_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced_steps: list[PublishedStep] = []

    def trace_step(step: PublishedStep) -> Trace:
        traced_steps.append(step)
        return traced()

    monkeypatch.setattr(counted_step.networks, "trace_step", trace_step)
    step = published_step("a network", (4, 8))
    cache = tmp_path / "a" / "cache"
    first = counted(step, cache)
    assert isinstance(first, CountedStep)
    (file,) = cache.iterdir()
    assert file.name == f"{networks.identity(step)}.json.gz"
    content = file.read_bytes()
    assert counted(step, cache) == first
    assert counted(dataclasses.replace(step, gpu="T4", seconds=9.0), cache) == first
    assert len(traced_steps) == 1
    assert counted(dataclasses.replace(step, batch=8), cache) == first
    assert len(traced_steps) == 2
    file.unlink()
    assert counted(step, cache) == first
    assert file.read_bytes() == content
    assert counted(step) == first
    assert len(traced_steps) == 4


def test_a_network_that_cannot_be_built_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotBuilt):
        counted(published_step("tiny MLP", (4, 8)), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
