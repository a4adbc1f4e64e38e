"""Losses by name, and what they compare an output with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn

from placer.errors import TargetError
from placer.tracing import trace
from placer.workload import make_workload, parse_loss
from placer.workload.losses import by_name, usual_target


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crossentropy", "unknown loss 'crossentropy'; the closest names are cross_entropy"),
        ("ctc_loss", "unknown loss 'ctc_loss'"),
        ("zzz", "unknown loss 'zzz'; a loss is a name in torch.nn.functional"),
        ("missing.py:loss", "there is no file missing.py; a loss is"),
        ("torch.nn:functional", "is a module, which cannot be called"),
        ("torch.nn:NLLLoss(nothing=1)", "unexpected keyword argument 'nothing'"),
    ],
)
def test_what_is_no_loss_is_told(text: str, says: str) -> None:
    with pytest.raises(TargetError if ":" in text else ValueError) as caught:
        parse_loss(text)
    assert says in str(caught.value)


def test_a_function_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "losses_for_test.py"
    path.write_text("def own(output): return output.sum()\ndef two(output, target): return (output - target).sum()\n")
    own, two = parse_loss(f"{path}:own"), parse_loss(f"{path}:two")
    assert usual_target(own, [((4, 3), torch.float32)] * 2) is None
    compared = usual_target(two, [((4, 3), torch.float16)])
    assert (compared.shape, compared.dtype) == ((4, 3), torch.float16)
    with pytest.raises(ValueError, match="the model returns 2 tensors"):
        usual_target(two, [((4, 3), torch.float32)] * 2)


SHAPES = {(32, 10): (32,), (8, 21, 14, 14): (8, 14, 14), (10,): ()}


@pytest.mark.parametrize(("given", "expected"), SHAPES.items())
@pytest.mark.parametrize("text", ["cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"])
def test_classes_are_indices_of_the_second_size(text: str, given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    compared = usual_target(parse_loss(text), [(given, torch.float32)])
    assert (compared.shape, compared.dtype) == (expected, torch.int64)


def reading(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Reads a value, so that its step has to run."""
    out: torch.Tensor = self.layer(x).sigmoid()
    return out * 2 if out.mean().item() > 1e9 else out


@pytest.mark.parametrize(("name", "real"), [(name, name.endswith(("_loss", "entropy"))) for name in by_name()])
def test_every_loss_of_torch_traces_and_runs(name: str, real: bool) -> None:
    loss = parse_loss(name)
    layer = nn.Linear(6, 3)
    model = module(reading, layer=layer) if real else layer
    step = make_workload(model, batch=(4, 6), mode="infer")
    outputs = [(each.shape, getattr(torch, each.dtype)) for each in trace(step).outputs]
    compared = usual_target(loss, outputs)
    trained = trace(replace(step, mode="train", optimizer="sgd", loss=loss, loss_target=compared))
    assert trained.real or not real  # some losses have no form without values
    assert any(call.phase == "loss" for call in trained.calls)
    assert trained.mode == "train"
