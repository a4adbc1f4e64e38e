"""A loader is measured between steps, whose own time does not count; and no batch of a stream is lost to that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, TensorDataset

from placer.integrations.loops import first_batch, loaded, loading_between
from placer.tracing.child import NoChild


def test_only_the_loader_s_time_counts() -> None:
    now, stepped = [0.0], []

    def loader() -> Iterator[int]:
        for batch in range(6):
            now[0] += 0.5
            yield batch

    def step(batch: Any) -> None:
        stepped.append(batch)
        now[0] += 100.0

    loading = loading_between(loader(), step, clock=lambda: now[0])
    assert loading.seconds == pytest.approx(0.5)
    assert not loading.overlapped
    assert stepped == [0, 1, 2, 3, 4, 5]


# --- streams ----------------------------------------------------------------------------------------------------------

posix = pytest.mark.skipif(os.name != "posix", reason="forks")


class Resumed(IterableDataset[Tensor]):
    """Goes on where it was left, as a data set does that reads from a queue or a socket."""

    def __init__(self) -> None:
        self.source = iter(torch.arange(40.0).unsqueeze(1))

    def __iter__(self) -> Iterator[Tensor]:
        return self.source


class FromAFile(IterableDataset[Tensor]):
    """Reads the lines of an open file, so where it is in there is the file's."""

    def __init__(self, path: Path) -> None:
        path.write_text("\n".join(map(str, range(40))))
        self.file = path.open()

    def __iter__(self) -> Iterator[Tensor]:
        with self.file:
            for line in self.file:
                yield torch.tensor([float(line)])


class Loop:
    """A loader of no library: its loop is one and the same."""

    def __init__(self) -> None:
        self.loop = iter(torch.arange(40.0).view(10, 4, 1))

    def __iter__(self) -> Iterator[Tensor]:
        return self.loop


def used_up() -> DataLoader[Any]:
    """Picks the rows of a data set by a sampler of one epoch."""
    return DataLoader(TensorDataset(torch.arange(40.0).unsqueeze(1)), batch_size=4, sampler=iter(range(40)))


STREAMS: dict[str, Callable[[Path], Any]] = {
    "the same iterator": lambda folder: DataLoader(Resumed(), batch_size=4),
    "workers": lambda folder: DataLoader(Resumed(), batch_size=4, num_workers=1, prefetch_factor=4, timeout=60),
    "workers that stay": lambda folder: DataLoader(Resumed(), batch_size=4, num_workers=1, persistent_workers=True),
    "a file": lambda folder: DataLoader(FromAFile(folder / "lines"), batch_size=4),
    "a loop": lambda folder: Loop(),
    "a sampler": lambda folder: used_up(),
}


@posix
@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_no_batch_of_a_stream_is_lost(make: Callable[[Path], Any], tmp_path: Path) -> None:
    loader = make(tmp_path)
    part = loaded(loader, "measure")
    batch, loading = part["batch"], part["loading"]
    batch = batch[0] if isinstance(batch, list) else batch
    assert batch.flatten().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert loading.seconds > 0.0
    assert loading.overlapped == (getattr(loader, "num_workers", 0) > 0)
    loading_between(loader, lambda batch: None)
    rows = [float(row) for batch in loader for row in (batch[0] if isinstance(batch, list) else batch)]
    assert rows == list(map(float, range(40)))


def test_a_stream_that_cannot_be_looked_at_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise NoChild

    monkeypatch.setattr("placer.tracing.child.call", none)
    loader = DataLoader(Resumed(), batch_size=4)
    with pytest.raises(TypeError, match="give a list of some of its batches"):
        first_batch(loader)
    assert float(next(iter(loader))[0]) == 0.0


@posix
def test_a_loader_without_batches_is_refused() -> None:
    for function in (lambda: loading_between([], print), lambda: first_batch(DataLoader(ChainDataset([])))):
        with pytest.raises(ValueError, match="the loader gave no batch"):
            function()
