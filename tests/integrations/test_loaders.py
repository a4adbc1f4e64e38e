"""A loader is measured between steps, whose own time does not count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from placer.integrations.loops import loading_between


class Clock:
    """Passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_the_loader_s_time_counts() -> None:
    clock, stepped = Clock(), []

    def loader() -> Iterator[int]:
        for batch in range(6):
            clock.now += 0.5
            yield batch

    def step(batch: Any) -> None:
        stepped.append(batch)
        clock.now += 100.0

    found = loading_between(loader(), step, clock=clock)
    assert found.seconds == pytest.approx(0.5)
    assert not found.overlapped
    assert stepped == [0, 1, 2, 3, 4, 5]


def test_the_order_of_its_next_epoch_is_as_before() -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, shuffle=True, generator=generator)
    before = generator.get_state()
    loading_between(loader, lambda batch: None)
    assert torch.equal(generator.get_state(), before)


def test_it_ends_when_its_time_is_over() -> None:
    stepped: list[Any] = []
    loading_between(range(10_000), lambda batch: (stepped.append(batch), time.sleep(0.01)), limit_seconds=0.02)
    assert 1 <= len(stepped) <= 2


def test_workers_do_not_wait_for_steps() -> None:
    stepped: list[Any] = []
    loader = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=2, num_workers=1)
    assert loading_between(loader, stepped.append).overlapped
    assert stepped == []


def test_a_loader_without_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="the loader gave no batch"):
        loading_between([], print)
