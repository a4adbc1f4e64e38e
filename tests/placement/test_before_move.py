"""Which optimizers have state to put back."""

from __future__ import annotations

import torch
from torch import nn

from placer.placement.relocation import BeforeMove, instances


def test_one_optimizer_several_a_name_or_none() -> None:
    one, other = (torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2))
    assert [instances(given) for given in (None, "adam", one, [one, other])] == [(), (), (one,), (one, other)]


def test_what_was_assigned_since_is_taken_back() -> None:
    """A buffer that a failed move replaced, a gradient that it dropped, and state of the optimizer."""
    model = nn.BatchNorm1d(2)
    optimizer = torch.optim.Adam(model.parameters())
    model.weight.grad = gradient = torch.ones(2)
    optimizer.step()
    mean, state = model.running_mean, dict(optimizer.state[model.weight])
    before = BeforeMove([model], [optimizer])
    model.running_mean, model.weight.grad, model.bias.grad = torch.zeros(2, device="meta"), None, torch.ones(2)
    optimizer.state[model.weight]["exp_avg"] = torch.zeros(2, device="meta")
    before.restore()
    assert model.running_mean is mean
    assert (model.weight.grad is gradient, model.bias.grad) == (True, None)
    assert all(optimizer.state[model.weight][name] is value for name, value in state.items())
