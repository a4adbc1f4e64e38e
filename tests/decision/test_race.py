from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from placer.decision import real_times
from placer.decision.decision import decide
from placer.decision.plan import Plan
from placer.decision.race import ROUNDS, race, step_on
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile
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


def test_a_race_without_memory_keeps_the_plan_that_was_priced(
    make_prediction: Callable[..., Prediction], handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    plan = Plan(decide(found, None), found, {}, handmade_profile)
    workload = make_workload(nn.Linear(4, 2), (3, 4))

    def refuse(error: Exception) -> None:
        def raced(*_: object) -> None:
            raise error

        monkeypatch.setattr(real_times, "race", raced)

    refuse(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the manual"))
    after = real_times.with_race(plan, workload, "always")
    assert after.notes == ("the real step was not timed: CUDA out of memory. Tried to allocate 2.00 GiB.",)
    assert (after.decision, after.predictions, after.measured) == (plan.decision, plan.predictions, False)
    refuse(RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"))
    assert real_times.with_race(plan, workload, "always").decision == plan.decision
    refuse(RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="multiplied"):
        real_times.with_race(plan, workload, "always")
