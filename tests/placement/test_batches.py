"""Batches arrive whole, in order, once; staging through pinned memory only where it was measured to be faster."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from placer import machine
from placer.placement import batches
from placer.placement.batches import MovedBatches, Staging, _side_stream, staging
from placer.profile.profile import Profile

META = torch.device("meta")


def test_nothing_is_fetched_ahead_of_time() -> None:
    drawn: list[int] = []

    def loader() -> Any:
        for number in range(3):
            drawn.append(number)
            yield torch.ones(1)

    for position, _ in enumerate(MovedBatches(loader(), META)):
        assert drawn == list(range(position + 1))


def test_the_rest_of_the_loader_stays_reachable() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    moved = MovedBatches(loader, META)
    assert len(moved) == 2
    assert moved.batch_size == 2
    with pytest.raises(AttributeError, match="no_such"):
        _ = moved.no_such
    assert len(pickle.loads(pickle.dumps(moved))) == 2


def with_copies(profile: Profile, **rates: float) -> Profile:
    cpu, cuda = profile.fits
    named = {f"copy/h2d/{key.replace('__', '/')}": value for key, value in rates.items()}
    return dataclasses.replace(profile, fits=(cpu, dataclasses.replace(cuda, rates={**cuda.rates, **named})))


def test_staging_is_decided_by_what_was_measured(handmade_profile: Profile) -> None:
    assert staging(handmade_profile, "cuda") is None  # copies from pinned memory were not measured
    assert staging(handmade_profile, "mps") is None
    slow_pageable = with_copies(
        handmade_profile, pageable__bytes_per_second=1e9, pinned__bytes_per_second=2e10, pinned__seconds_per_tensor=1e-5
    )
    found = staging(slow_pageable, "cuda")
    assert found is not None
    assert found.pays(10**8, 1)
    slow_pinning = with_copies(
        handmade_profile, pageable__bytes_per_second=9e9, pinned__bytes_per_second=9e9, pinned__seconds_per_tensor=1e-3
    )
    found = staging(slow_pinning, "cuda")
    assert found is not None
    assert not found.pays(1000, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("pin", [False, True])
def test_copies_beside_the_computation_arrive_unharmed(pin: bool) -> None:
    device = torch.device(machine.accelerators()[0])
    data = TensorDataset(torch.arange(64 * 5000, dtype=torch.float32).view(64, 5000), torch.arange(64))
    always = Staging((1.0, 1.0), (0.0, 0.0), 0.0, 0.0)
    rows = 0
    work = torch.randn(1500, 1500, device=device)
    for x, y in MovedBatches(DataLoader(data, batch_size=8, pin_memory=pin), device, always):
        work = work @ work / work.norm()  # keeps the device busy while the next batch comes
        assert x.device.type == y.device.type == device.type
        assert torch.equal(x.cpu(), data.tensors[0][rows : rows + 8])
        assert y.tolist() == list(range(rows, rows + 8))
        rows += 8
    assert rows == 64


@pytest.mark.gpu
def test_a_loader_with_one_pinned_buffer_loses_no_batch() -> None:
    device = torch.device(machine.accelerators()[0])
    buffer = torch.empty(1 << 22).pin_memory()
    found = [batch[-1] for batch in MovedBatches((buffer.fill_(number) for number in range(20)), device)]
    assert torch.stack(found).tolist() == list(range(20))


class Streams:
    """A device module whose streams only write down what is asked of them."""

    def __init__(self, told: list[object]) -> None:
        self.told = told

    @contextlib.contextmanager
    def stream(self, copies: object) -> Iterator[None]:
        self.told.append(("on", copies))
        yield
        self.told.append("copied")

    def current_stream(self, device: torch.device) -> Streams:
        return self

    def wait_stream(self, copies: object) -> None:
        self.told.append(("waits for", copies))

    def synchronize(self) -> None:
        self.told.append("ended")


def pinning(patch: pytest.MonkeyPatch, told: list[object]) -> Streams:
    """Stand-ins for pinned memory, of which there is none without a driver, and for streams."""
    streams, pinned = Streams(told), set[int]()
    patch.setattr(torch, "get_device_module", lambda device: streams)
    patch.setattr(torch.Tensor, "is_pinned", lambda self: id(self) in pinned)
    patch.setattr(torch.Tensor, "pin_memory", lambda self: (told.append("pinned"), pinned.add(id(self)), self)[2])
    patch.setattr(torch.Tensor, "record_stream", lambda self, stream: told.append((self.shape, stream)))
    return streams


def test_a_staged_batch_is_copied_beside_the_computation_which_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is not reused before the step has read it."""
    told: list[object] = []
    streams = pinning(monkeypatch, told)
    always, never = (Staging((cost, cost), (0.0, 0.0), 0.0, 0.0) for cost in (1.0, 0.0))
    batch = {"x": torch.ones(4, 2), "there": torch.ones(3, device="meta"), "name": "a"}
    for stage, copies in ((never, "copies"), (None, "copies")):
        assert MovedBatches([], META, stage)._arrived(batch, copies)["x"].device == META
    assert told == []
    moved = MovedBatches([], META, always)._arrived(batch, "copies")
    assert (moved["x"].device, moved["name"]) == (META, "a")
    assert told == [
        "pinned", ("on", "copies"), "copied", ("waits for", "copies"), ((4, 2), streams), ((3,), streams),
    ]  # fmt: skip


def test_a_loader_may_fill_one_pinned_buffer_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy from it has ended by then; also where the loop over the batches is left early."""
    told: list[object] = []
    streams = pinning(monkeypatch, told)
    monkeypatch.setattr(batches, "_side_stream", lambda device: streams)
    buffer = torch.empty(2).pin_memory()

    def loader() -> Iterator[torch.Tensor]:
        for number in range(3):
            told.append("filled")
            yield buffer.fill_(number)

    for number, _ in enumerate(MovedBatches(loader(), META)):
        if number == 1:
            break
    gc.collect()
    assert [what for what in told if what in ("filled", "copied", "ended")] == ["filled", "copied", "ended"] * 2


def test_all_loaders_of_a_device_share_one_stream_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further stream would keep batches of its own reserved."""
    made: list[torch.device] = []

    class Module:
        stream = current_stream = None

        def Stream(self, device: torch.device) -> object:  # noqa: N802
            made.append(device)
            return object()

    monkeypatch.setattr(torch, "get_device_module", lambda device: Module())
    there = torch.device("cuda", 7)
    _side_stream.cache_clear()
    try:
        for _ in range(3):
            assert list(MovedBatches([], there)) == list(MovedBatches([], there)) == []
    finally:
        _side_stream.cache_clear()
    assert made == [there]
