"""A Placement: what it says, and how it moves what it is given."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from explained import table_of
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from placer.decision.decision import Decision
from placer.errors import PlacerError
from placer.placed import Placement
from placer.pricing.prediction import Prediction

# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


def placed(device: str) -> Placement:
    return Placement(Decision(device, 2, 0.9, f"{device}: because"))


def test_attributes_come_from_the_decision(make_prediction: Callable[..., Prediction]) -> None:
    predictions = {"cpu": make_prediction("cpu", 1e-3), "cuda": make_prediction("cuda", 2e-3)}
    table = table_of(predictions)
    decision = table.decide()
    placement = Placement(decision, table)
    assert placement.decision.device == "cpu"
    assert placement.predictions[placement.device].step_seconds == 1e-3
    assert (placement.threads, placement.confidence) == (2, decision.confidence)
    assert (placement.reason, placement.decision) == (decision.reason, decision)
    assert "cpu" in repr(placement)


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


def test_batches_leaves_the_loader_alone_on_the_cpu() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    assert placed("cpu").batches(loader) is loader


def test_batches_moves_and_can_be_repeated() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2), torch.ones(4)), batch_size=2)
    batches: Any = placed("meta").batches(loader)
    for _ in range(2):
        assert [x.device for x, _ in batches] == [META, META]
    assert len(batches) == 2
    assert batches.dataset is loader.dataset
    assert [x.device for x in placed("meta").batches(iter([torch.ones(1)]))] == [META]


def test_explain_without_a_prediction_says_why() -> None:
    with pytest.raises(PlacerError, match="no prediction to explain: cpu: because"):
        placed("cpu").explain()
