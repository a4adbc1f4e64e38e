"""accelerate, Optuna and torchdiffeq. Their own scripts, with placer and without, are in ``tests/scripts``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import placer


def test_the_answer_in_accelerates_words() -> None:
    integration = pytest.importorskip("placer.integrations.accelerate")
    for device, on_cpu in (("cpu", True), ("cuda", False), ("cuda:1", False)):
        placement = placer.Placement(placer.Decision(device, 2, 0.9, f"{device}: because"))
        assert integration.cpu(placement) is on_cpu


def test_a_trial_says_where_it_ran() -> None:
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    from placer.integrations import optuna as integration

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trial = optuna.create_study().ask()
    placement = integration.choose(trial, nn.Linear(2, 2), (1, 2), devices="cpu")
    assert trial.user_attrs == {
        "placer_device": "cpu", "placer_reason": placement.reason, "placer_confidence": 1.0,
        "placer_step_seconds": placement.predictions["cpu"].step_seconds,
    }  # fmt: skip
    trial = optuna.create_study().ask()
    with pytest.warns(UserWarning, match="without a prediction"):
        integration.choose(trial, nn.Linear(2, 2), (1, 3), devices="cpu")  # not the width that the layer takes
    assert "by convention" in trial.user_attrs["placer_reason"]
    assert "placer_step_seconds" not in trial.user_attrs


class Spiral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        result: Tensor = self.net(y**3)
        return result


def test_a_neural_ode_is_priced_by_its_whole_solution() -> None:
    pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed")
    from placer.integrations import torchdiffeq as integration

    func, y0 = Spiral(), torch.tensor([[2.0, 0.0]])
    before = [parameter.clone() for parameter in func.parameters()]

    def seconds(points: int, **options: object) -> float:
        given = {"method": "euler", "mode": "infer", "devices": "cpu", **options}
        placement = integration.choose(func, y0, torch.linspace(0.0, 1.0, points), **given)
        return placement.predictions["cpu"].step_seconds

    assert seconds(30) > 3 * seconds(3)  # a finer grid
    assert seconds(3, method="dopri5") > seconds(3)
    assert seconds(3, mode="train", adjoint=True) > seconds(3, mode="train")  # solves backwards
    assert all(torch.equal(a, b) for a, b in zip(before, func.parameters(), strict=True))
    with pytest.raises(TypeError, match=r"func must be an nn\.Module, so that it can be moved, not function"):
        integration.choose(lambda t, y: y, y0, torch.ones(2))
