"""A Placement: what it says, and how it moves what it is given."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from placer.decision.decision import Decision
from placer.errors import PlacerError
from placer.placed import Placement

# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


def placed(device: str) -> Placement:
    return Placement(Decision(device, 2, 0.9, f"{device}: because"))


def test_to_moves_every_tensor_of_a_nest_and_nothing_else() -> None:
    Pair = namedtuple("Pair", ["x", "label"])

    @dataclass
    class Item:
        x: torch.Tensor
        name: str

    t = torch.ones(2)
    moved = placed("meta").to({"a": [t, 3], "b": Pair(t, "cat"), "c": Item(t, "dog"), "d": (None, {1, 2})})
    assert moved["a"][0].device == moved["b"].x.device == moved["c"].x.device == META
    assert (moved["a"][1], moved["b"].label, moved["c"].name, moved["d"]) == (3, "cat", "dog", (None, {1, 2}))
    assert t.device.type == "cpu"
    packed = placed("meta").to(pack_sequence([torch.ones(3, 2)]))
    assert isinstance(packed, PackedSequence)
    assert packed.data.device == META


def test_batches_are_moved_and_the_loader_is_left_alone_on_the_cpu() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4)), batch_size=2)
    assert placed("cpu").batches(loader) is loader
    batches: Any = placed("meta").batches(loader)
    for _ in range(2):
        assert [x.device for x, _ in batches] == [META, META]
    assert (len(batches), batches.dataset) == (2, loader.dataset)
    assert [x.device for x in placed("meta").batches(iter([torch.ones(1)]))] == [META]


def test_explain_without_a_prediction_says_why() -> None:
    with pytest.raises(PlacerError, match="no prediction to explain: cpu: because"):
        placed("cpu").explain()
