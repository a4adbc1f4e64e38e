"""Step functions are traced by running them on the user's own modules, which are afterwards as before."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pictures import changed, picture, same
from torch import nn

from placer.errors import TraceError
from placer.tracing import Trace, trace
from placer.workload import make_workload


def traced_untouched(step: Callable[..., Any], shape: Any, *watched: Any, **kwargs: Any) -> Trace:
    """The trace, after checking that everything the function reaches is as it was."""
    before = picture(*watched)
    traced = trace(make_workload(step, shape, **kwargs))
    after = picture(*watched)
    assert changed(before, after) == []
    return traced


def updates(traced: Trace) -> Counter[str]:
    return Counter(c.op for c in traced.calls if c.op.startswith("optimizer::"))


def classifier() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))


def training() -> tuple[nn.Sequential, torch.optim.Adam, Callable[[torch.Tensor], None]]:
    """A model, its optimizer, and a step of both."""
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()

    return model, optimizer, step


def test_a_step_like_the_models_own_is_traced_like_it() -> None:
    model, optimizer, step = training()
    traced = traced_untouched(step, (16, 4), model, optimizer)
    own = trace(make_workload(model, (16, 4), mode="train", optimizer=optimizer))
    for field in dataclasses.fields(Trace):
        if field.name not in ("calls", "python_calls", "evicted_calls", "notes", "real"):
            assert getattr(traced, field.name) == getattr(own, field.name), field.name
    # The function does not say where its loss begins.
    plain = [(c.op, c.inputs, c.outputs, c.args, c.layer) for c in traced.calls]
    assert plain == [(c.op, c.inputs, c.outputs, c.args, c.layer) for c in own.calls]
    phases = [c.phase.replace("loss", "forward") for c in own.calls]
    assert [c.phase for c in traced.calls] == phases
    assert traced.real


def test_a_step_in_a_thread_of_its_own_is_traced_like_it() -> None:
    model, optimizer, step = training()

    def threaded(x: torch.Tensor) -> None:
        thread = threading.Thread(target=step, args=(x,))
        thread.start()
        thread.join()

    traced = traced_untouched(threaded, (16, 4), model, optimizer)
    plain = trace(make_workload(step, (16, 4)))
    assert (traced.mode, traced.autograd_nodes) == ("train", plain.autograd_nodes)
    assert traced.peak_activation_bytes == plain.peak_activation_bytes
    assert traced.calls == plain.calls


def gan() -> tuple[Callable[..., Any], list[Any]]:
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 6))
    critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Dropout(), nn.Linear(8, 1))
    first = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)
    second = torch.optim.Adam(generator.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(second, 1)
    losses: list[float] = []

    def step(real: torch.Tensor) -> None:
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 4))
        first.zero_grad()
        loss = F.binary_cross_entropy_with_logits(critic(real), ones)
        (loss + F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)).backward()
        first.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        second.zero_grad()
        loss = F.binary_cross_entropy_with_logits(critic(fake), ones)
        loss.backward()
        second.step()
        schedule.step()
        losses.append(loss.item())
        for parameter in critic.parameters():
            parameter.requires_grad_(True)

    return step, [generator, critic, first, second, schedule, losses]


def test_a_gan_with_two_optimizers() -> None:
    step, watched = gan()
    step(torch.randn(5, 6))
    traced = traced_untouched(step, (5, 6), *watched, modules=watched[:2])
    assert traced.mode == "train"
    assert traced.optimizer == "SGD+Adam"
    assert updates(traced) == {"optimizer::Adam": 6}  # the other has momentum, and is traced as it runs
    assert updates(traced.on("cuda")) == {"optimizer::SGD": 4, "optimizer::Adam": 6}
    assert traced.optimizer_state_bytes == 4 * (65 + 2 * 110) + 6 * 4
    assert traced.syncs == 1
    assert len(traced.parameters) == 10
    layers = {c.layer.partition(".")[0] for c in traced.calls}
    assert layers == {"", "generator", "critic"}
    phases = [c.phase for c in traced.calls]
    turns = [a for a, b in zip(phases, [*phases[1:], None], strict=True) if a != b]
    assert turns == ["forward", "backward", "optimizer"] * 2 + ["forward"]
    assert {c.phase for c in traced.calls if c.op.endswith("_backward")} == {"backward"}


@pytest.mark.parametrize("own", [False, True])
def test_clipping_and_updates_by_hand_are_the_optimizers(own: bool) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.train()
        loss = F.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if own:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        else:
            optimizer.step()
        return loss

    model.eval()
    traced = traced_untouched(step, [(16, 4), (16, 3)], model, optimizer)
    after = [c.op for c in traced.calls if c.phase == "optimizer"]
    assert any("norm" in op for op in after)
    assert after[-6:] == (["aten::mul", "aten::sub_"] * 3 if own else ["optimizer::SGD"] * 6)
    assert "aten::dropout" in {c.op for c in traced.calls}
    assert traced.optimizer == (None if own else "SGD")


def test_a_closure_given_to_the_optimizer_is_recorded() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def step(x: torch.Tensor) -> None:
        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = model(x).square().sum()
            value.backward()
            return value

        optimizer.step(loss)

    traced = traced_untouched(step, (8, 4), model, optimizer)
    assert 1 <= traced.module_calls <= 4
    assert sum(c.op == "aten::addmm" for c in traced.calls) == traced.module_calls
    assert any(c.op == "aten::dot" for c in traced.calls if c.phase == "optimizer")


@pytest.mark.parametrize("where", ["forward", "backward", "update"])
def test_a_step_that_raises_says_where_and_leaves_everything_as_it_was(where: str) -> None:
    step, watched = gan()
    critic, first = watched[1], watched[2]

    def fails(x: torch.Tensor) -> None:
        step(x)
        loss = critic(x).sum()
        if where == "forward":
            raise ValueError("deep inside")
        loss.register_hook(lambda grad: grad.reshape(7)) if where == "backward" else None
        loss.backward()
        first.param_groups[0]["lr"] = None
        first.step()

    before = picture(*watched)
    with pytest.raises(TraceError, match="the step function failed in "):
        trace(make_workload(fails, (5, 6)))
    assert same(before, picture(*watched))


class Refuses:
    """Raises where it is asked for its class or its attributes."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not this one")

    @property
    def __dict__(self) -> Any:
        raise RuntimeError("nor those")


class Loading(dict[str, Any]):
    """Would read a large file where its items are asked for."""

    def values(self) -> Any:
        raise OSError("no such file")

    def __len__(self) -> int:
        raise OSError("no such file")


def test_what_a_step_reaches_is_found_without_asking_its_objects() -> None:
    model = nn.Linear(4, 2)
    gone = nn.Linear(1, 1)
    model.others = [weakref.proxy(gone), Refuses(), Loading(a=1)]
    del gone
    other = nn.Linear(4, 2)
    proxy = weakref.proxy(other)

    def step(x: torch.Tensor) -> None:
        (model(x) + proxy.forward(x)).sum().backward()

    traced = trace(make_workload(step, (3, 4), modules=model))
    assert traced.mode == "train"
    assert len(traced.parameters) == 4  # those of what the live proxy stands for, too
