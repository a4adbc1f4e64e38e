"""accelerate, Optuna and torchdiffeq. Their own scripts, with placer and without, are in ``tests/scripts``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer


@pytest.fixture
def accelerate() -> Iterator[Any]:
    """The library, in a process that has no ``Accelerator`` yet."""
    library = pytest.importorskip("accelerate", reason="accelerate is not installed")
    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield library
    library.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_accelerate_takes_the_arguments_and_trains_there(accelerate: Any, told: Callable[[], list[str]]) -> None:
    from placer.integrations.accelerate import accelerator_args

    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = accelerator_args(model, x, optimizer=optimizer, devices="cpu", gradient_accumulation_steps=2)
    assert given == {"gradient_accumulation_steps": 2, "cpu": True}
    assert [said.partition(":")[0] for said in told()] == ["cpu"]
    accelerator = accelerate.Accelerator(**given)
    prepared, stepping = accelerator.prepare(model, optimizer)
    before = model.weight.detach().clone()
    accelerator.backward(prepared(x).square().mean())
    stepping.step()
    assert accelerator.device.type == "cpu"
    assert accelerator.gradient_accumulation_steps == 2
    assert not torch.equal(model.weight, before)


def test_what_accelerate_is_told_stays(accelerate: Any, told: Callable[[], list[str]]) -> None:
    from placer.integrations.accelerate import accelerator_args

    model = nn.Linear(4, 1)
    for own in ({"cpu": False, "step_scheduler_with_optimizer": False}, {"cpu": True}, {"mixed_precision": "fp16"}):
        assert accelerator_args(model, (8, 4), optimizer="sgd", **own) == own
        (said,) = told()
        assert "was given, so nothing is predicted" in said
    with pytest.raises(TypeError, match="unexpected keyword argument 'cpus'"):
        accelerator_args(model, (8, 4), cpus=True)
    with pytest.warns(placer.PlacerWarning, match="placed on cpu without a prediction"):
        assert accelerator_args(model, (8, 3), devices="cpu") == {"cpu": True}  # not the width that the layer takes


def test_a_trial_says_where_it_ran() -> None:
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    from placer.integrations import optuna as integration

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trial = optuna.create_study().ask()
    placement = integration.choose(trial, nn.Linear(2, 2), (1, 2), devices="cpu")
    assert trial.user_attrs == {
        "placer_device": "cpu",
        "placer_reason": placement.reason,
        "placer_confidence": 1.0,
        "placer_step_seconds": placement.predictions["cpu"].step_seconds,
    }
    trial = optuna.create_study().ask()
    with pytest.warns(UserWarning, match="without a prediction"):
        integration.choose(trial, nn.Linear(2, 2), (1, 3), devices="cpu")  # not the width that the layer takes
    assert "by the default rule" in trial.user_attrs["placer_reason"]
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
