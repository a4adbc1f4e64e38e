"""Jobs and their parts: what is accepted, and what a batch takes to load from the user's loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from placer import Job, Loading, Part
from placer.integrations.loops import loading_between


def part(name: str = "training", **arguments: Any) -> Part:
    return Part(name, nn.Linear(4, 2), (8, 4), **arguments)


def test_a_part_is_a_workload_that_repeats() -> None:
    found = part(count=938, mode="infer", data="pinned", loading=0.002, loop_calls=7)
    assert (found.count, found.workload.mode, found.workload.data) == (938, "infer", "pinned")
    assert (found.workload.loading, found.workload.loop_calls) == (Loading(0.002), 7)
    job = Job([part("a"), part("b", count=2)], repeats=3)
    changed = job.with_part(job.part("b").changed(count=5))
    assert [[p.count for p in each.parts] for each in (job, changed)] == [[1, 2], [1, 5]]
    assert changed.repeats == 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: part(count=0), ValueError, "count must be above 0"),
        (lambda: part(count=float("inf")), ValueError, "count must be above 0 and finite"),
        (lambda: part(count="3"), TypeError, "count must be a number above 0, not '3'"),
        (lambda: part(loading=-1.0), ValueError, "seconds of a loading must be 0 or more"),
        (lambda: part(loading=[1]), TypeError, r"placer.Loading.of\(loader\) measures a DataLoader"),
        (lambda: part(loop_calls=-1), ValueError, "loop_calls must be a whole number"),
        (lambda: part(mode="eval"), ValueError, "mode must be"),
        (lambda: Job([]), ValueError, "at least one part"),
        (lambda: Job([part(), part()]), ValueError, "two parts of a job are called 'training'"),
        (lambda: Job([nn.Linear(2, 2)]), TypeError, "placer.Part objects, not Linear"),  # type: ignore[list-item]
        (lambda: Job([part()], repeats=0), ValueError, "repeats must be at least 1"),
        (lambda: Job([part()]).part("rollout"), ValueError, "no part 'rollout'; it has: training"),
    ],
)
def test_wrong_parts_and_jobs_are_refused(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# --- loading ----------------------------------------------------------------------------------------------------------


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise AssertionError("it was iterated")


class Epoch:
    def __init__(self, begin: Callable[[], Iterator[int]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[int]:
        return self.begin()


@pytest.mark.parametrize(
    ("lengths", "limit", "mean", "count"), [((9.0, 5.0, 1.0, 2.0, 3.0), 99.0, 2.0, 5), ((3.0,) * 50, 10.0, 3.0, 4)]
)
def test_the_mean_of_the_batches_counts_without_the_first_ones_until_the_time_is_over(
    lengths: tuple[float, ...], limit: float, mean: float, count: int
) -> None:
    now, taken = 0.0, 0

    def batches() -> Iterator[int]:
        nonlocal now, taken
        for seconds in lengths:
            now, taken = now + seconds, taken + 1
            yield 0

    assert Loading.of(Epoch(batches), limit_seconds=limit, clock=lambda: now).seconds == pytest.approx(mean)
    assert taken == count


def test_random_numbers_and_workers_that_stay_are_as_without_it() -> None:
    def order(measure: bool) -> list[float]:
        torch.manual_seed(3)
        data = TensorDataset(torch.arange(32.0))
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(5))
        loaders = [
            DataLoader(data, sampler=sampler),
            DataLoader(data, shuffle=True, num_workers=1, persistent_workers=True),
            DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(5)),
        ]
        if measure:
            for loader in loaders:
                Loading.of(loader, batches=3)
                loading_between(loader, lambda batch: None)
        return [*(float(batch[0]) for loader in loaders for batch in loader), float(torch.rand(()))]

    assert order(measure=True) == order(measure=False)


def test_what_cannot_be_measured_is_an_error_and_no_iterator_is_consumed() -> None:
    batches = iter([1, 2, 3])
    with pytest.raises(TypeError, match="no iterator"):
        Loading.of(batches)
    assert next(batches) == 1
    for again in (Endless(), DataLoader(Endless(), batch_size=2), Epoch(lambda: batches)):
        with pytest.raises(TypeError, match="no IterableDataset"):
            Loading.of(again)
    assert next(batches) == 2
    with pytest.raises(ValueError, match="the loader gave no batch"):
        Loading.of([])
