"""The contract's promises to somebody who leaves ``choose`` in a training script, on models that make it hard."""

from __future__ import annotations

import copy
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from competing import compete
from torch import Tensor, nn

import placer
from placer.errors import PlacerWarning
from placer.profile.profile import Profile


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


class HoldsALock(Base):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class ReadsValues(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.abs().max().item() < 100 else x / 100)


class RefusesWhatIsNotReal(Base):
    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "meta":
            raise NotImplementedError("no meta tensors")
        return super().forward(x)


class RefusesCopies(Base):
    def __deepcopy__(self, memo: Any) -> Any:
        raise KeyError("there is only one of me")


class CountsItself(Base):
    """State of its own, changed by every forward pass, and numbers of all generators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += x.detach().sum()
        drawn: float = random.random() * np.random.rand()  # noqa: NPY002
        return super().forward(x) + self.calls * drawn


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * 2 * ctx.saved_tensors[0]


class LeavesTorch(Base):
    """Computes in numpy, in an autograd function of its own."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = Square.apply(super().forward(x))  # type: ignore[no-untyped-call]
        return result


MODELS = [Base, HoldsALock, ReadsValues, RefusesWhatIsNotReal, RefusesCopies, CountsItself, LeavesTorch]


def trained(kind: Callable[[], nn.Module], placed: bool) -> tuple[list[float], list[warnings.WarningMessage]]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            x = torch.randn(16, 4)
            if placed:
                placement = placer.choose(model, batch=x, optimizer=optimizer, devices="cpu")
                x = placement.to(x)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, [w for w in caught if issubclass(w.category, PlacerWarning)]


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_choose_never_breaks_a_training_script(kind: Callable[[], nn.Module], calibrated: Profile) -> None:
    """Asked before every step, even: the losses are those without placer."""
    without, _ = trained(kind, placed=False)
    losses, warned = trained(kind, placed=True)
    assert losses == without
    assert all("placed on cpu without a prediction" in str(w.message) for w in warned)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore::placer.errors.PlacerWarning")
def test_the_model_is_untouched_by_pricing_also_when_its_forward_raises(
    kind: type[nn.Module], fails: bool, calibrated: Profile
) -> None:
    class Failing(kind):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise RuntimeError("after everything ran")

    model = (Failing if fails else kind)()
    model.layers[2].eval()  # type: ignore[union-attr, index, operator]
    model.layers[0].register_forward_hook(lambda *_: hooked.append(1))  # type: ignore[union-attr, index, operator]
    model.layers[0].weight.grad = torch.ones(8, 4)  # type: ignore[union-attr, index]
    hooked: list[int] = []
    state = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    plain = {name: value for name, value in vars(model).items() if isinstance(value, (int, str))}
    generator = torch.get_rng_state()
    parameters = [id(p) for p in model.parameters()]
    placer.choose(model, (16, 4), devices="cpu", move=False)
    torch.testing.assert_close(dict(model.state_dict()), state, rtol=0, atol=0)
    assert [module.training for module in model.modules()] == flags
    assert {name: value for name, value in vars(model).items() if isinstance(value, (int, str))} == plain
    assert torch.equal(torch.get_rng_state(), generator)
    assert [id(p) for p in model.parameters()] == parameters
    weight, *others = model.parameters()
    assert torch.equal(weight.grad, torch.ones(8, 4))  # type: ignore[arg-type]
    assert all(p.grad is None for p in others)
    assert hooked == []


@pytest.mark.parametrize("value", ["cpu", " cpu ", "cpu:0"])
def test_placer_device_overrides_every_prediction(
    value: str, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_DEVICE", value)
    model = Base()
    rare = [{"options": placer.Options(threads="tune")}, {"options": placer.Options(measure="always")}]
    for arguments in ({}, *rare, {"steps": 3}, {"data": "device"}):
        placement = placer.choose(model, (16, 4), **arguments)  # type: ignore[arg-type]
        assert (placement.decision.device, placement.confidence) == ("cpu", None)
        assert placement.reason == "cpu: set by PLACER_DEVICE"
    with placement.step():
        model(placement.to(torch.ones(2, 4)))
    monkeypatch.setenv("PLACER_DEVICE", "warp-drive")
    with pytest.raises(ValueError, match=r"PLACER_DEVICE.*'warp-drive'"):
        placer.choose(model, (16, 4))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_measuring_touches_neither_model_nor_optimizer_nor_random_numbers(
    mode: Any, calibrated: Profile, make_prediction: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the order of the data stays as well."""
    compete(monkeypatch, {name: make_prediction(name, 1e-3) for name in ("cpu", "cpu:0")})
    model = CountsItself()
    optimizer = torch.optim.Adam(model.parameters())

    def everything() -> Any:
        drawn = random.getstate()[1], np.random.get_state()[1].tolist()  # type: ignore[union-attr]  # noqa: NPY002
        untrained = [p.grad is None for p in model.parameters()], len(optimizer.state), model.training
        state = copy.deepcopy(dict(model.state_dict()))
        return state, torch.get_rng_state(), str((drawn, untrained, model.calls))

    before = everything()
    always = placer.Options(measure="always")
    placement = placer.choose(model, (8, 4), mode=mode, optimizer=optimizer, options=always, move=False)
    assert placement.reason.endswith("(measured on cpu and cpu:0)")
    (state, generator, rest), (state_before, generator_before, rest_before) = everything(), before
    torch.testing.assert_close(state, state_before, rtol=0, atol=0)
    assert torch.equal(generator, generator_before)
    assert rest == rest_before
