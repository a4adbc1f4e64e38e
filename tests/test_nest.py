from __future__ import annotations

import importlib
import weakref
from collections import OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from placer.nest import leaves, map_nest, tensors

Pair = namedtuple("Pair", ["x", "y"])


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    name: str = "batch"
    extra: dict[str, Any] = field(default_factory=dict)


def double(leaf: Any) -> Any:
    return leaf.to(torch.float64)


def test_a_nest_without_tensors_is_returned_as_it_is_and_cycles_end() -> None:
    nest = {"a": [1, "two", (3.0, None)], "b": {4}}
    assert map_nest(double, nest) is nest
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    assert [id(t) for t in tensors(loop)] == [id(loop[0])]


class Quantity:
    """As pint, astropy and arrow have it: ``to`` converts, and knows no devices."""

    def __init__(self, value: Any = 1.0) -> None:
        self.value = value

    def to(self, unit: Any, *contexts: Any) -> Any:
        raise ValueError(f"{unit} is not a unit")


class Device(Quantity):
    """One that takes what is called a device, and has nothing of torch's."""

    def to(self, device: Any) -> Any:
        raise ValueError("not here")


def test_what_has_another_to_is_left_alone() -> None:
    """Also one that holds a tensor: what its ``to`` means, nobody knows. torch's storages take no device like that."""
    t = torch.ones(2)
    odd = [Quantity(), Quantity(t), Device(), t.untyped_storage(), Quantity, np.float32(1.0), np.ones(2)]
    for leaf in odd:
        assert map_nest(double, leaf) is leaf
    nest = {"x": t, "odd": odd}
    moved = map_nest(double, nest)
    assert moved["x"].dtype == torch.float64
    assert moved["odd"] is odd


class Labelled(namedtuple("Labelled", ["x", "label"])):
    """A named tuple that is made of something else than its fields."""

    def __new__(cls, x: Any) -> Labelled:
        made = super().__new__(cls, x, "label")
        made.note = "kept"
        return made

    def to_list(self) -> list[Any]:
        return list(self)


class Padded(list[Any]):
    def __init__(self, items: Any, padding: int) -> None:
        super().__init__(items)
        self.padding = padding


class Marked(set[Any]):
    def __init__(self, items: Any, mark: str) -> None:
        super().__init__(items)
        self.mark = mark


class Window(deque[Any]):
    def __init__(self, items: Any, mark: str) -> None:
        super().__init__(items, maxlen=2)
        self.mark = mark


class Group(frozenset[Any]):
    def __new__(cls, items: Any, mark: str) -> Group:
        made = super().__new__(cls, items)
        made.mark = mark
        return made


class Named(dict[str, Any]):
    def __init__(self, name: str, **items: Any) -> None:
        super().__init__(**items)
        self.name = name


class Frozen(Mapping[str, Any]):
    """One that cannot be written to, and is made of the mapping that it stands for."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Stubborn(list[Any]):
    """One of which there is no copy."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("not to be copied")


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x: Any) -> None:
        self.x = x

    def to(self, device: Any) -> Slots:
        return Slots(self.x.to(device))


def test_containers_of_every_make_keep_what_else_they_carry() -> None:
    t = torch.ones(2)
    made: list[Any] = [
        Labelled(t),
        Padded([t, 1], 3),
        Named("a", x=t),
        [t, (t, 1)],
        Pair(t, "label"),
        OrderedDict(x=t),
        Batch(t, extra={"z": t}),
        defaultdict(list, x=t),
        frozenset([t]),
        {t, 2},
        deque([0, t], maxlen=2),
        UserList([t]),
        UserDict(x=t),
        Frozen({"x": t}),
        MappingProxyType({"x": t}),
        torch.max(torch.ones(2, 2), 0),
        torch.return_types.max((t, t)),
        Marked([t], "m"),
        Window([t], "m"),
        Group([t], "m"),
    ]
    before = [list(tensors(item)) for item in made]
    moved = map_nest(double, made)
    for old, new, held in zip(made, moved, before, strict=True):
        assert type(new) is type(old)
        assert [leaf.dtype for leaf in tensors(new)] == [torch.float64] * len(held)
        assert all(a is b for a, b in zip(tensors(old), held, strict=True))  # the user's own is as it was
        assert getattr(new, "__dict__", {}).keys() == getattr(old, "__dict__", {}).keys()
    assert (moved[0].label, moved[0].note, moved[1].padding, moved[2].name) == ("label", "kept", 3, "a")
    assert [item.mark for item in moved[-3:]] == ["m"] * 3
    assert moved[10].maxlen == moved[-2].maxlen == 2
    stubborn = Stubborn([t])
    assert map_nest(double, [stubborn])[0] is stubborn
    slotted = map_nest(lambda leaf: leaf.to("meta"), [Slots(t)])
    assert [leaf.device.type for leaf in tensors(slotted)] == ["meta"]


@dataclass
class Node:
    x: torch.Tensor
    parent: Any = None
    children: list[Any] = field(default_factory=list)


def test_what_is_within_itself_is_mapped_as_such() -> None:
    t = torch.ones(2)
    for top in ([t], {"x": t}, deque([t]), UserList([t]), OrderedDict(x=t)):
        top.update(me=[top]) if isinstance(top, dict) else top.append([top])
        moved = map_nest(double, top)
        inner = moved["me"] if isinstance(top, dict) else moved[1]
        assert moved is not top
        assert inner[0] is moved
        assert [leaf.dtype for leaf in tensors(moved)] == [torch.float64]
        assert map_nest(lambda leaf: leaf, top) is top
        assert [leaf.dtype for leaf in tensors(top)] == [torch.float32]
    root = Node(t)
    root.children = [Node(torch.zeros(1), parent=root)]
    moved = map_nest(double, root)
    assert moved.children[0].parent is moved
    assert [leaf.dtype for leaf in tensors(moved)] == [torch.float64] * 2
    within: list[Any] = [t]
    pair = (within, t)
    within.append(pair)  # a tuple cannot be made before what is in it, and stays as it is there
    moved = map_nest(double, pair)
    assert moved[0][1] is pair
    assert [leaf.dtype for leaf in moved[0][:1]] == [torch.float64]


def test_pricing_sees_the_tensors_that_move() -> None:
    """In containers however deep, each as often as it is met; and those of unknown objects, which nothing moves."""
    deep: Any = torch.ones(2)
    for _ in range(40):
        deep = [deep]
    t = torch.ones(1)
    gone = weakref.proxy(Quantity())
    nest = [gone, deep, deque([t]), UserList([t]), UserDict(x=t), {t}, Slots(t), pack_sequence([t])]
    moved = map_nest(lambda leaf: leaf.to("meta"), nest)
    found = list(tensors(nest))
    assert [leaf.shape for leaf in found] == [leaf.shape for leaf in tensors(moved)]
    assert len(leaves(nest)) == 7
    assert {leaf.device.type for leaf in tensors(moved) if leaf.dtype is torch.float32} == {"meta"}


def test_the_outputs_of_transformers_are_mapped() -> None:
    library = pytest.importorskip("transformers")
    output = importlib.import_module("transformers.modeling_outputs").BaseModelOutput(last_hidden_state=torch.ones(2))
    words = library.BatchEncoding({"input_ids": torch.ones(2), "words": ["a"]})
    moved = map_nest(lambda leaf: leaf.to("meta"), [output, words])
    assert moved[0].last_hidden_state.device.type == moved[0]["last_hidden_state"].device.type == "meta"
    assert type(moved[0]) is type(output)
    assert moved[1]["input_ids"].device.type == "meta"
    assert output.last_hidden_state.device.type == "cpu"
    texts = library.BatchEncoding({"input_ids": [1, 2]})
    assert map_nest(double, texts) is texts


def test_a_state_dict_keeps_its_format() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    moved = map_nest(lambda t: t.to("meta"), state)
    assert type(moved) is type(state)
    assert moved._metadata == state._metadata
    assert moved["running_mean"].device.type == "meta"
    assert state["running_mean"].device.type == "cpu"


def test_graph_batches_move_as_one() -> None:
    data = pytest.importorskip("torch_geometric.data")
    graphs = data.Batch.from_data_list(
        [data.Data(x=torch.ones(n, 3), edge_index=torch.zeros(2, n, dtype=torch.long), name=f"g{n}") for n in (2, 3)]
    )
    moved = map_nest(lambda leaf: leaf.to("meta"), {"graphs": graphs, "epoch": 3})
    assert moved["graphs"].x.device.type == moved["graphs"].batch.device.type == "meta"
    assert moved["graphs"].name == ["g2", "g3"]
    assert moved["epoch"] == 3
