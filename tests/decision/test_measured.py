"""Real step times in place of predicted ones: recorded in earlier runs, or timed on copies; and busy devices."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from competing import compete
from torch import Tensor, nn

import placer
from placer.decision import history, measured
from placer.decision.measured import StepTime, race, shared_function, step_on, with_measured, with_recorded
from placer.decision.table import PricedPart, Table
from placer.pricing import Prediction
from placer.profile import Profile
from placer.workload import Workload, make_workload

Make = Callable[..., Prediction]
GOOD = {"kind": "steps", "workload": "key", "device": "cpu", "threads": 2, "step_seconds": 1.0, "low": 0.9,
        "high": 1.2, "steps_timed": 40}  # fmt: skip


def model(units: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 1))


def choose(net: nn.Module, shape: Any = (16, 4), **options: Any) -> placer.Placement:
    return placer.choose(net, shape, **{"devices": "cpu", **options})


def run(placement: placer.Placement, seconds: float, count: int = 40) -> None:
    """Steps of that length, on a clock that is not the machine's; enough of them to be written down."""
    now = [0.0]
    placement.times._clock = lambda: now[0]
    for _ in range(count):
        with placement.step():
            now[0] += seconds
    placement.times._record()


def test_the_next_choice_uses_what_was_seen_and_says_so(calibrated: Profile) -> None:
    net = model()
    first = choose(net)
    assert "recorded in earlier runs" not in first.reason
    run(first, 0.25)
    second = choose(model())
    assert second.reason.endswith("(recorded in earlier runs on cpu)")
    assert second.predictions["cpu"].step_seconds == pytest.approx(0.25)
    assert sum(second.predictions["cpu"].components.values()) == pytest.approx(0.25)
    assert any("recorded in earlier runs" in note for note in second.explain().notes)
    assert placer.explain(model(), (16, 4), devices="cpu").devices["cpu"].step_seconds == pytest.approx(0.25)
    assert choose(model(9)).predictions["cpu"].step_seconds < 0.1
    assert choose(model(), (17, 4)).predictions["cpu"].step_seconds < 0.1
    program = (
        "import sys, torch, placer; from torch import nn\n"
        "p = placer.choose(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), (16, 4), devices='cpu')\n"
        "print(p.reason, any(name.startswith('placer.pricing.gpu') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip().endswith("(recorded in earlier runs on cpu) False"), done.stderr  # and loads no catalog
    run(second, 0.5)
    assert choose(net).predictions["cpu"].step_seconds == pytest.approx(0.5)  # the newest counts


def test_it_can_turn_the_choice(calibrated: Profile, make_prediction: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    compete(monkeypatch, {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", 2e-3)})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # what the hand-made predictions are for
    net = model()
    placement = choose(net, devices=None, move=False)
    assert placement.decision.device == "cpu"
    run(placement, 4e-3)
    turned = choose(net, devices=None, move=False)
    assert turned.decision.device == "cpu:0"
    assert "recorded in earlier runs on cpu" in turned.reason
    # What was measured on both sides counts more than what one side is remembered for.
    assert "recorded" not in choose(net, devices=None, move=False, options=placer.Options(measure="always")).reason


@pytest.mark.parametrize("change", [
    {"steps_timed": 3}, {"step_seconds": "fast"}, {"step_seconds": -1.0}, {"low": None}, {"high": 1e-9},
    {"device": "warp"}, {"threads": 99}, {"kind": "decision"}, {"step_seconds": True}, {"hardware": "another CPU"},
])  # fmt: skip
def test_entries_that_say_nothing_usable_are_passed_over(change: dict[str, Any], make_prediction: Make) -> None:
    predictions = {"cpu": make_prediction("cpu"), "cuda": make_prediction("cuda")}
    measured.record({**GOOD, "device": "cuda", "threads": 1})
    measured.record(GOOD)
    history.record({**GOOD, "hardware": measured.hardware("cpu"), "step_seconds": 1.1, **change})
    assert measured.lookup("key", predictions) == {"cuda": StepTime(1.0, 0.9, 1.2), "cpu": StepTime(1.0, 0.9, 1.2)}
    assert measured.lookup("other", predictions) == {}


def test_the_newest_run_counts_and_even_steps_are_not_taken_for_certainty(make_prediction: Make) -> None:
    for seconds in (2.0, 3.0, 1.0):
        measured.record({**GOOD, "step_seconds": seconds, "low": seconds, "high": seconds})
    seen = measured.lookup("key", {"cpu": make_prediction("cpu")})["cpu"]
    assert (seen.step_seconds, seen.low < 0.95, seen.high > 1.05) == (1.0, True, True)


# --- a race on copies -------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Counts its calls in a buffer, so that running the original instead of a copy would show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.dropout = nn.Dropout()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
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
    assert all(0 < result.low <= result.step_seconds <= result.high for result in results.values())
    assert model.training
    with pytest.raises(RuntimeError):  # as the model does
        race(make_workload(model, (3, 5)), ("cpu",))
    torch.testing.assert_close(everything(model, optimizer), before, rtol=0, atol=0)


def test_devices_are_timed_in_turns_until_the_limit() -> None:
    ticks = iter(range(100_000))  # every clock reading is one second after the one before

    def clock() -> int:
        return next(ticks)

    net = nn.Linear(4, 2)
    results = race(make_workload(net, (3, 4)), ("cpu", "cpu:0"), limit_seconds=1e9, clock=clock)
    assert [result.step_seconds for result in results.values()] == [1, 1]
    steps: list[int] = []

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            steps.append(1)
            return x

    race(make_workload(Slow(), (1,), mode="infer"), ("cpu",), limit_seconds=0.5, clock=clock)
    assert len(steps) == 2  # one untimed, one timed: the least that gives a number


def test_a_step_is_what_the_trace_differentiates() -> None:
    """The model's own loss, where it gives one; nested outputs, and nothing where no parameter learns."""
    seen: list[Any] = []

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)

        def forward(self, ids: Tensor) -> dict[str, Any]:
            logits = self.embedding(ids)
            if logits.requires_grad:
                logits.register_hook(lambda gradient: seen.append(gradient.unique().tolist()))
            return {"loss": 3.0 * logits.sum(), "logits": [logits], "n": 3}

    class Update(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.append("update")

    ids, model = torch.empty(2, 5, dtype=torch.int64, device="meta"), Own()
    for mode, expected in (("train", [[3.0], "update"]), ("infer", [])):
        seen.clear()
        step_on(make_workload(model, batch=ids, mode=mode, optimizer=Update(model.parameters(), lr=0.1)), "cpu")()
        assert seen == expected
    step_on(make_workload(model.requires_grad_(requires_grad=False), batch=ids, mode="train"), "cpu")()
    step_on(make_workload(nn.Flatten(), (3, 4), mode="train"), "cpu")()  # has nothing to learn
    assert seen == []


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


# --- what they change of a table --------------------------------------------------------------------------------------

TableOf = Callable[..., Table]


@pytest.fixture
def table_of(handmade_profile: Profile) -> TableOf:
    def made(*predictions: Prediction, repeats: int | None = None) -> Table:
        found = {p.device: p for p in predictions}
        return Table((PricedPart("", 1, found, {}, key="key"),), handmade_profile, {}, repeats, notes=("known",))

    return made


@pytest.fixture
def workload() -> Workload:
    return make_workload(nn.Linear(4, 2), (3, 4))


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The devices of every race, in which the GPU is the faster one, and the threads that it ran with."""
    seen: list[tuple[str, ...]] = []

    def race(_: Workload, devices: tuple[str, ...]) -> dict[str, StepTime]:
        seen.append((*devices, str(torch.get_num_threads())))
        return {name: StepTime(1.0, 0.9, 1.1) if name == "cuda" else StepTime(2.0, 1.9, 2.1) for name in devices}

    monkeypatch.setattr(measured, "race", race)
    return seen


def test_only_what_could_turn_out_otherwise_is_raced(
    table_of: TableOf, make_prediction: Make, workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    cpu = make_prediction("cpu", 1.0)
    clear = table_of(cpu, make_prediction("cuda", 3.0))
    full = table_of(replace(cpu, fits=False), make_prediction("cuda", 9.0, fits=False))
    beside = table_of(cpu, make_prediction("cuda", 1.2, fits=False))
    for table, measure in ((table_of(cpu), "always"), (beside, "always"), (full, "always"), (clear, "unsure")):
        assert with_measured(table, workload, measure) is table
    assert raced == []
    touching = make_prediction("cuda", 3.0, low=cpu.high)
    assert with_measured(table_of(cpu, touching), workload, "unsure").predicted is not None
    assert with_measured(clear, workload, "always").predicted is not None
    assert [devices[:2] for devices in raced] == [("cpu", "cuda")] * 2


def test_a_race_decides_and_says_so(
    table_of: TableOf, make_prediction: Make, workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    threads = torch.get_num_threads()
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_measured(table, workload, "unsure")
    assert (table.decide().device, after.decide().device, after.predicted) == ("cpu", "cuda", table)
    assert after.decide().reason.endswith("(measured)")
    assert {name: p.step_seconds for name, p in after.costs.items()} == {"cpu": 2.0, "cuda": 1.0}
    assert "were measured on this machine" in after.parts[0].notes[0]
    assert (raced[0][2], torch.get_num_threads()) == ("2", threads)  # it ran with those the CPU's prediction is for


def in_place() -> nn.Module:
    compiled = nn.Linear(4, 2)
    compiled.compile(backend="eager")
    return compiled


def hooked() -> nn.Module:
    net = nn.Linear(4, 2)
    net.register_forward_hook(lambda *_: None)
    return net


def raising(error: Exception) -> nn.Module:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise error

    return Raises()


@pytest.mark.parametrize(("net", "said"), [
    (in_place(), "a copy would have to be compiled again"), (hooked(), "copies of the model would call "),
    (raising(torch.OutOfMemoryError("CUDA out of memory.\nSee the manual")), "OutOfMemoryError: CUDA out of memory."),
    (raising(ValueError("no such key")), "ValueError: no such key"),
])  # fmt: skip
def test_what_cannot_be_raced_keeps_what_was_predicted(
    net: nn.Module, said: str, table_of: TableOf, make_prediction: Make
) -> None:
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cpu:0", 1.1))
    after = with_measured(table, make_workload(net, (3, 4)), "always")
    assert (after.decide(), after.costs, after.predicted) == (table.decide(), table.costs, None)
    assert after.notes[1].startswith(f"the real step was not timed: {said}")


def test_what_was_seen_takes_the_place_of_what_was_predicted(table_of: TableOf, make_prediction: Make) -> None:
    cpu = make_prediction("cpu", 1.0, one_time_seconds=0.5, steps=10)
    table = table_of(cpu, make_prediction("cuda", 1.1), repeats=10)
    assert with_recorded(table) is table
    measured.record({**GOOD, "step_seconds": 3.0, "low": 2.0, "high": 4.0})
    after = with_recorded(table)
    assert (table.decide().device, after.decide().device, len(after.parts[0].notes)) == ("cpu", "cuda", 1)
    assert after.decide().reason.endswith("(recorded in earlier runs on cpu)")
    found = after.costs["cpu"]
    assert (found.low, found.high, found.total_seconds) == (2.0, 4.0, 0.5 + 10 * 3.0)
    assert sum(found.components.values()) == pytest.approx(3.0)
    raced = replace(table, predicted=table)
    assert with_recorded(raced) is raced
