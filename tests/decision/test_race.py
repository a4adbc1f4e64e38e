from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from placer.decision.measured import ROUNDS, race, shared_function, step_on
from placer.workload import make_workload


class Counting(nn.Module):
    """Counts its calls in a buffer, so that running the original instead of a copy would show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.dropout = nn.Dropout()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.dropout(self.layer(x)) * random.random() * np.random.rand()  # noqa: NPY002


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        [torch.tensor(p.grad is None) for p in model.parameters()],
        torch.tensor(len(optimizer.state)),
        torch.get_rng_state(),
        torch.tensor(random.getstate()[1]),
        torch.from_numpy(np.random.get_state()[1].astype(np.int64)),  # type: ignore[union-attr]  # noqa: NPY002
    )


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_race_leaves_the_model_and_all_generators_as_they_were(mode: str) -> None:
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters())
    before = everything(model, optimizer)
    results = race(make_workload(model, (3, 4), mode=mode, optimizer=optimizer), ("cpu", "cpu:0"))
    torch.testing.assert_close(everything(model, optimizer), before, rtol=0, atol=0)
    assert set(results) == {"cpu", "cpu:0"}
    for result in results.values():
        assert 0 < result.low <= result.step_seconds <= result.high
    assert model.training


def test_devices_are_timed_in_turns() -> None:
    ticks = iter(range(100_000))
    results = race(
        make_workload(nn.Linear(4, 2), (3, 4)), ("cpu", "cpu:0"), limit_seconds=1e9, clock=lambda: next(ticks)
    )
    # Every clock reading is one second after the one before: each step lasts from one reading to the next.
    assert [result.step_seconds for result in results.values()] == [1, 1]


def test_the_time_limit_ends_a_race_after_one_round() -> None:
    ticks = iter(range(100_000))
    steps: list[int] = []

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steps.append(1)
            return x

    race(make_workload(Slow(), (1,), mode="infer"), ("cpu",), limit_seconds=0.5, clock=lambda: next(ticks))
    assert len(steps) == 2  # one untimed, one timed: the least that gives a number
    assert ROUNDS > 2


def test_a_training_step_goes_backward_and_updates() -> None:
    seen: list[str] = []

    class Watched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            if y.requires_grad:
                y.register_hook(lambda _: seen.append("backward"))
            return y

    class Update(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.append("update")

    steps = {"train": ["backward", "update"], "infer": []}
    for mode, expected in steps.items():
        model = Watched(4, 2)
        optimizer = Update(model.parameters(), lr=0.1)
        step = step_on(make_workload(model, (3, 4), mode=mode, optimizer=optimizer), "cpu")
        seen.clear()
        step()
        assert seen == expected
    step_on(make_workload(nn.Flatten(), (3, 4), mode="train"), "cpu")()  # has nothing to learn


def test_integer_inputs_and_nested_outputs() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)

        def forward(self, ids: torch.Tensor) -> dict[str, Any]:
            return {"x": [self.embedding(ids)], "n": 3}

    ids = torch.empty(2, 5, dtype=torch.int64, device="meta")
    assert race(make_workload(Tokens(), example=ids), ("cpu",))["cpu"].step_seconds > 0


def test_a_model_that_raises_raises_here_too() -> None:
    workload = make_workload(nn.Linear(4, 2), (3, 5))
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        race(workload, ("cpu",))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_race_differentiates_what_the_trace_does() -> None:
    """The model's own loss, where it gives one; and nothing where no parameter learns."""
    seen: list[Any] = []

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.layer(x)
            if logits.requires_grad:
                logits.register_hook(seen.append)
            return {"loss": 3.0 * logits.sum(), "logits": logits}

    model = Own()
    step_on(make_workload(model, (3, 4), optimizer="sgd"), "cpu")()
    assert [gradient.unique().tolist() for gradient in seen] == [[3.0]]
    step_on(make_workload(model.requires_grad_(requires_grad=False), (3, 4), mode="train"), "cpu")()
    assert len(seen) == 1


def test_copies_share_hooks_and_new_forwards_of_the_users() -> None:
    def shared(model: nn.Module) -> str | None:
        return shared_function(make_workload(model, (3, 4)))

    def mine(*_: object) -> None: ...

    with_hook, replaced = nn.Sequential(nn.Linear(4, 2)), nn.Linear(4, 2)
    with_hook[0].register_forward_hook(partial(mine, 1))
    replaced.forward = lambda x, old=replaced.forward: old(x)  # type: ignore[method-assign]
    assert [str(shared(model)).rpartition(".")[2] for model in (with_hook, replaced)] == ["mine", "<lambda>"]
    handle = nn.modules.module.register_module_forward_pre_hook(mine)
    assert shared(nn.Linear(4, 2)) is not None
    handle.remove()
    saved, torchs = nn.Linear(4, 2), nn.utils.spectral_norm(nn.Linear(4, 2))
    saved.register_state_dict_post_hook(mine)  # not called in a step
    assert (shared(saved), shared(torchs)) == (None, None)
