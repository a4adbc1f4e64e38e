"""What a step differentiates: what is given, what the model calls its loss, or all that it returns."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from placer.workload.step_loss import loss_of


def learnt(*values: complex, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def test_a_given_loss_comes_first() -> None:
    output = SimpleNamespace(loss=learnt(1.0).sum(), logits=learnt(2.0))
    found = loss_of(output, lambda out: 2.0 * out.logits.sum())
    assert found is not None
    assert found.item() == 4.0
    assert loss_of(output, lambda out: out.logits.detach().sum()) is None
    assert loss_of(output, lambda out: None) is None


@pytest.mark.parametrize("make", [OrderedDict, dict, SimpleNamespace])
def test_the_models_own_loss_comes_next(make: Any) -> None:
    loss = learnt(1.0).sum()
    assert loss_of(make(logits=learnt(2.0), loss=loss), None) is loss


def test_else_all_floating_outputs_are_summed_each_once_and_the_real_part_of_complex_ones() -> None:
    x, z = learnt(1.0, 2.0), learnt(3.0 + 4.0j, dtype=torch.complex64)
    found = loss_of({"x": [x, (x,)], "z": z, "row": torch.arange(3), "fixed": torch.ones(2), "loss": learnt(5.0)}, None)
    assert found is not None
    assert (found.item(), found.is_complex()) == (11.0, False)
    found.backward()
    assert z.grad is not None
    assert loss_of([torch.ones(2), 3, None], None) is None
