"""Batches arrive whole, in order, once; staging through pinned memory only where it was measured to be faster."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import operator
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from placer import machine
from placer.nest import leaves, map_nest
from placer.placement import batches
from placer.placement.batches import MovedBatches, Staging, staging
from placer.profile.profile import Profile

META = torch.device("meta")
ALWAYS, NEVER = (Staging((cost, cost), (0.0, 0.0), 0.0, 0.0) for cost in (1.0, 0.0))


class Streamed:
    """A loader with the old protocol of sequences, and an attribute to set."""

    epoch = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            raise IndexError(index)
        return torch.full((2,), float(index))


def of_data() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=2)


LOADERS: dict[str, Callable[[], Any]] = {
    "a generator": lambda: (torch.ones(2) for _ in range(3)),
    "a list": lambda: [torch.ones(2)] * 3,
    "no batch": list,
    "a tuple": lambda: (torch.ones(2),),
    "an iterator": lambda: iter([torch.ones(2)] * 3),
    "a DataLoader": of_data,
    "its iterator": lambda: iter(of_data()),
    "a sequence": Streamed,
    "a mapping": lambda: {"a": torch.ones(2)},
    "a map": lambda: map(torch.ones, (1, 2)),
}
KINDS = (DataLoader, list, Iterator, Iterable, Sized, Sequence, Generator, Mapping)
ASKED: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "twice": lambda loader: (list(loader), list(loader)),
    "next": next,
    "len": len,
    "bool": bool,
    "first": lambda loader: loader[0],
    "slice": lambda loader: loader[:2],
    "by name": lambda loader: loader["a"],
    "reversed": lambda loader: list(reversed(loader)),
    "in": lambda loader: 3 in loader,
    "iter of iter": lambda loader: list(iter(iter(loader))),
    "is its iterator": lambda loader: iter(loader) is loader,
    "left and gone on": lambda loader: (next(iter(loader)), list(loader)),
    "is": lambda loader: [isinstance(loader, kind) for kind in KINDS],
    "send": lambda loader: loader.send(None),
    "close": lambda loader: (loader.close(), list(loader)),
    "length hint": lambda loader: operator.length_hint(loader, 7),
    "has": lambda loader: [hasattr(loader, name) for name in ("__len__", "__next__", "__getitem__", "dataset")],
    "batch size": lambda loader: loader.batch_size,
    "vars": lambda loader: sorted(vars(loader)),
}


def answered(question: Callable[[Any], Any], loader: Any) -> Any:
    """What the question gives, on the CPU and comparable, or the class of its error."""
    try:
        given = question(loader)
    except Exception as error:  # noqa: BLE001 - which one it is, is the answer
        return type(error)
    moved = [leaf for leaf in leaves(given) if isinstance(leaf, torch.Tensor)]
    return map_nest(lambda leaf: tuple(leaf.shape), given), {tensor.device.type for tensor in moved}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("question", ASKED)
def test_whatever_a_loader_answers_it_answers_on_a_device_too(question: str, loader: str) -> None:
    """A batch comes moved; all else, and every error, is the loader's own."""
    expected = answered(ASKED[question], LOADERS[loader]())
    found = answered(ASKED[question], MovedBatches(LOADERS[loader](), META))
    if isinstance(expected, tuple):
        expected = expected[0], {"meta"} if expected[1] else set()
    assert found == expected


def test_attributes_are_the_loader_s() -> None:
    loader = Streamed()
    moved: Any = MovedBatches(loader, META)
    moved.epoch = 3
    assert loader.epoch == moved.epoch == 3
    del moved.epoch
    assert loader.epoch == moved.epoch == 0
    with pytest.raises(AttributeError, match="no_such"):
        _ = moved.no_such
    listed: Any = MovedBatches(items := [torch.ones(2)], META)
    listed[0] = torch.ones(3)
    listed.append(torch.ones(4))
    assert [len(item) for item in items] == [len(item) for item in listed] == [3, 4]


def test_moved_batches_can_be_sent_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(MovedBatches(of_data(), META, ALWAYS)))
    assert [x.device for (x,) in again] == [META] * 3


def test_staging_is_decided_by_what_was_measured(handmade_profile: Profile) -> None:
    assert staging(handmade_profile, "cuda") is None  # copies from pinned memory were not measured
    assert staging(handmade_profile, "mps") is None
    cpu, cuda = handmade_profile.fits
    for pageable, pinned, seconds_per_tensor, batch, pays in (
        (1e9, 2e10, 1e-5, (10**8, 1), True),
        (9e9, 9e9, 1e-3, (1000, 2), False),
    ):
        copies = {
            "copy/h2d/pageable/bytes_per_second": pageable,
            "copy/h2d/pinned/bytes_per_second": pinned,
            "copy/h2d/pinned/seconds_per_tensor": seconds_per_tensor,
        }
        fits = (cpu, dataclasses.replace(cuda, rates={**cuda.rates, **copies}))
        stage = staging(dataclasses.replace(handmade_profile, fits=fits), "cuda")
        assert stage is not None
        assert stage.pays(*batch) is pays


@pytest.mark.gpu
@pytest.mark.parametrize("pin", [False, True])
def test_copies_beside_the_computation_arrive_unharmed(pin: bool) -> None:
    device = torch.device(machine.accelerators()[0])
    data = TensorDataset(torch.arange(64 * 5000, dtype=torch.float32).view(64, 5000), torch.arange(64))
    rows = 0
    work = torch.randn(1500, 1500, device=device)
    for x, y in MovedBatches(DataLoader(data, batch_size=8, pin_memory=pin), device, ALWAYS):
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
    """A device module with one stream, which only writes down what is asked of it."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    @contextlib.contextmanager
    def stream(self, copies: object) -> Iterator[None]:
        yield
        self.asked.append("copied")

    def current_stream(self, device: torch.device) -> Streams:
        return self

    def wait_stream(self, copies: object) -> None:
        self.asked.append("waited for")

    def synchronize(self) -> None:
        self.asked.append("ended")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of stand-ins for pinned memory, of which there is none without a driver, and for streams."""
    asked: list[str] = []
    streams, pinned = Streams(asked), set[int]()

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        asked.append("pinned")
        pinned.add(id(tensor))
        return tensor

    monkeypatch.setattr(torch, "get_device_module", lambda device: streams)
    monkeypatch.setattr(batches, "_side_stream", lambda device: streams)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: id(self) in pinned)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: asked.append("kept"))
    return asked


def test_a_staged_batch_is_copied_beside_the_computation_which_waits_for_it(asked: list[str]) -> None:
    """Its memory is not reused before the step has read it. What is sparse goes by a plain copy."""
    batch = {
        "x": torch.ones(4, 2),
        "there": torch.ones(3, device="meta"),
        "name": "a",
        "sparse": torch.eye(2).to_sparse(),
    }
    for stage in (NEVER, None, ALWAYS):
        assert asked == []
        (moved,) = MovedBatches([batch], META, stage)
        assert (moved["x"].device, moved["there"], moved["name"]) == (META, batch["there"], "a")
        assert (moved["sparse"].device, moved["sparse"].layout) == (META, torch.sparse_coo)
    assert asked == ["pinned", "copied", "waited for", "kept", "ended"]


def test_a_batch_that_cannot_be_pinned_is_copied_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system locks no more memory for the process. It is not tried with each further batch."""
    tried: list[Any] = []

    def refused(tensor: torch.Tensor) -> Any:
        tried.append(tensor)
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refused)
    assert [x.device for x in MovedBatches([torch.ones(2)] * 3, META, ALWAYS)] == [META] * 3
    assert len(tried) == 1


def test_a_loader_may_fill_one_pinned_buffer_again_and_again(asked: list[str]) -> None:
    """The copy from it has ended by then; also where the loop is left early. No batch is fetched ahead of its step."""
    buffer = torch.empty(2).pin_memory()

    def loader() -> Iterator[torch.Tensor]:
        for number in range(3):
            asked.append("filled")
            yield buffer.fill_(number)

    for number, _ in enumerate(MovedBatches(loader(), META)):
        asked.append("step")
        if number == 1:
            break
    gc.collect()
    order = ["filled", "copied", "step", "ended"]
    assert [what for what in asked if what in order] == order * 2


def test_a_device_has_one_stream_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator keeps the memory of every stream apart."""
    streams = SimpleNamespace(Stream=lambda device: object(), stream=None, current_stream=None)
    monkeypatch.setattr(torch, "get_device_module", lambda device: streams)
    device = torch.device("privateuseone", 99)
    assert batches._side_stream(device) is batches._side_stream(device)
