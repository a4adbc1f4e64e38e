"""What a batch takes to load: measured from the user's loader, which is left as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from placer import Loading


class Slow(torch.utils.data.Dataset[Any]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(2)


class Epoch:
    def __init__(self, begin: Callable[[], Iterator[int]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[int]:
        return self.begin()


def test_the_mean_of_the_batches_counts_without_the_first_ones() -> None:
    now = 0.0

    def batches() -> Iterator[int]:
        nonlocal now
        for seconds in (9.0, 5.0, 1.0, 2.0, 3.0):
            now += seconds
            yield 0

    assert Loading.of(Epoch(batches), limit_seconds=99.0, clock=lambda: now).seconds == pytest.approx(2.0)


def test_measuring_ends_with_its_time() -> None:
    now, taken = 0.0, 0

    def batches() -> Iterator[int]:
        nonlocal now, taken
        while True:
            now, taken = now + 3.0, taken + 1
            yield 0

    assert Loading.of(Epoch(batches), limit_seconds=10.0, clock=lambda: now).seconds == pytest.approx(3.0)
    assert taken == 4


def test_a_slow_loader_is_seen_and_one_with_workers_overlaps() -> None:
    found = Loading.of(DataLoader(Slow(0.002), batch_size=4), batches=4)
    assert found.seconds >= 0.008
    assert not found.overlapped
    assert Loading.of(DataLoader(Slow(0.0), batch_size=4, num_workers=1), batches=2).overlapped


def test_random_numbers_are_as_without_it() -> None:
    def order(measure: bool) -> list[float]:
        torch.manual_seed(3)
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(TensorDataset(torch.arange(32.0)), shuffle=True, generator=generator)
        if measure:
            Loading.of(loader, batches=3)
        return [*(float(batch[0]) for batch in loader), float(torch.rand(()))]

    assert order(measure=True) == order(measure=False)


def test_a_generator_of_the_sampler_and_workers_that_stay_are_as_before() -> None:
    def order(measure: bool) -> list[float]:
        torch.manual_seed(3)
        data = TensorDataset(torch.arange(32.0))
        sampler = torch.utils.data.RandomSampler(data, generator=torch.Generator().manual_seed(5))
        loaders = [
            DataLoader(data, sampler=sampler), DataLoader(data, shuffle=True, num_workers=1, persistent_workers=True)
        ]  # fmt: skip
        if measure:
            for loader in loaders:
                Loading.of(loader, batches=3)
        return [float(batch[0]) for loader in loaders for batch in loader]

    assert order(measure=True) == order(measure=False)


def test_an_iterator_is_not_consumed() -> None:
    batches = iter([1, 2, 3])
    with pytest.raises(TypeError, match="no iterator"):
        Loading.of(batches)
    assert next(batches) == 1


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(ValueError, match="the loader gave no batch"):
        Loading.of([])
