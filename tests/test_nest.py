from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from placer.nest import map_nest, tensors

Pair = namedtuple("Pair", ["x", "y"])


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    name: str = "batch"
    extra: dict[str, Any] = field(default_factory=dict)


def double(leaf: Any) -> Any:
    return leaf.to(torch.float64)


def test_every_container_keeps_its_type() -> None:
    t = torch.ones(2)
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    nest = {"a": [t, (t, 1)], "b": Pair(t, "label"), "c": OrderedDict(x=t), "d": Batch(t, extra={"z": t}), "e": None,
            "f": defaultdict(list, x=t), "g": packed}  # fmt: skip
    moved = map_nest(double, nest)
    assert type(moved["a"]) is list
    assert moved["a"][1][1] == 1
    assert isinstance(moved["b"], Pair)
    assert moved["b"].y == "label"
    assert isinstance(moved["c"], OrderedDict)
    assert isinstance(moved["d"], Batch)
    assert moved["d"].name == "batch"
    assert moved["f"]["missing"] == []
    assert isinstance(moved["g"], PackedSequence)
    assert moved["g"].batch_sizes.dtype == torch.int64
    del moved["g"]
    assert [x.dtype for x in tensors(moved)] == [torch.float64] * 7
    assert t.dtype == torch.float32


def test_a_nest_without_tensors_is_returned_as_it_is_and_cycles_end() -> None:
    nest = {"a": [1, "two", (3.0, None)], "b": {4}}
    assert map_nest(double, nest) is nest
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    assert [id(t) for t in tensors(loop)] == [id(loop[0])]


def test_objects_with_to_are_leaves() -> None:
    class Graph:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def to(self, dtype: torch.dtype) -> Graph:
            return Graph(self.x.to(dtype))

    graph = Graph(torch.ones(2))
    assert map_nest(double, [graph])[0].x.dtype == torch.float64
    assert next(tensors(graph)) is graph.x


def test_tensors_come_in_the_order_of_the_nest_as_often_as_they_are_in_it() -> None:
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    found = list(tensors({"x": [a, (b, a)], "y": Batch(c, extra={"z": b}), "w": a}))
    assert [id(t) for t in found] == [id(t) for t in (a, b, a, c, b, a)]


def test_a_state_dict_keeps_its_format() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    moved = map_nest(lambda t: t.to("meta"), state)
    assert type(moved) is type(state)
    assert moved._metadata == state._metadata
    assert moved["running_mean"].device.type == "meta"
    assert state["running_mean"].device.type == "cpu"


def test_graph_batches_move_as_one() -> None:
    data = pytest.importorskip("torch_geometric.data")
    graphs = data.Batch.from_data_list([
        data.Data(x=torch.ones(n, 3), edge_index=torch.zeros(2, n, dtype=torch.long), name=f"g{n}") for n in (2, 3)
    ])  # fmt: skip
    moved = map_nest(lambda leaf: leaf.to("meta"), {"graphs": graphs, "epoch": 3})
    assert moved["graphs"].x.device.type == moved["graphs"].batch.device.type == "meta"
    assert moved["graphs"].name == ["g2", "g3"]
    assert moved["epoch"] == 3
