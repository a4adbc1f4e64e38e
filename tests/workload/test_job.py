"""Jobs and their parts: what is accepted, and what is refused with a clear word."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from placer import Job, Loading, Part


def part(name: str = "training", **arguments: Any) -> Part:
    return Part(name, nn.Linear(4, 2), (8, 4), **arguments)


def test_a_part_is_a_workload_that_repeats() -> None:
    found = part(count=938, mode="infer", data="pinned", loading=0.002, loop_calls=7)
    assert (found.count, found.workload.mode, found.workload.data) == (938, "infer", "pinned")
    assert found.workload.loading == Loading(0.002)
    assert found.workload.loop_calls == 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"count": 0}, ValueError, "count must be above 0"),
        ({"count": float("inf")}, ValueError, "count must be above 0 and finite"),
        ({"count": "3"}, TypeError, "count must be a number above 0, not '3'"),
        ({"loading": -1.0}, ValueError, "seconds of a loading must be 0 or more"),
        ({"loading": [1]}, TypeError, r"placer.Loading.of\(loader\) measures a DataLoader"),
        ({"loop_calls": -1}, ValueError, "loop_calls must be a whole number"),
        ({"mode": "eval"}, ValueError, "mode must be"),
    ],
)
def test_wrong_parts_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        part(**arguments)


def test_wrong_jobs_are_refused() -> None:
    for parts, error, message in (
        ([], ValueError, "at least one part"),
        ([part(), part()], ValueError, "two parts of a job are called 'training'"),
        ([nn.Linear(2, 2)], TypeError, "placer.Part objects, not Linear"),
    ):
        with pytest.raises(error, match=message):
            Job(parts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        Job([part()], repeats=0)
    with pytest.raises(TypeError, match="apart must be True or False"):
        Job([part()], apart=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no part 'rollout'; it has: training"):
        Job([part()]).part("rollout")


def test_a_changed_part_takes_the_place_of_its_name() -> None:
    job = Job([part("a"), part("b", count=2)], repeats=3, apart=True)
    changed = job.with_part(job.part("b").changed(count=5))
    assert [p.count for p in changed.parts] == [1, 5]
    assert (changed.repeats, changed.apart) == (3, True)
    assert [p.count for p in job.parts] == [1, 2]


def test_modules_and_optimizers_are_named_once() -> None:
    net, other = nn.Linear(4, 2), nn.Linear(4, 2)
    adam = torch.optim.Adam(net.parameters())
    job = Job([
        Part("training", net, (8, 4), optimizer=adam), Part("evaluation", net, (8, 4), mode="infer", optimizer=adam),
        Part("critic", other, (8, 4), optimizer="sgd"),
    ])  # fmt: skip
    assert job.modules == (net, other)
    assert job.optimizers == (adam,)
