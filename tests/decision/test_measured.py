"""Real steps that are timed now, on copies of the model, and what they change of a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from forwards import module
from torch import Tensor, nn

from placer.decision import history, measured
from placer.decision.measured import race, shared_function, step_on, with_measured
from placer.decision.recorded import StepTime
from placer.decision.table import Table
from placer.pricing import Prediction
from placer.workload import Workload, make_workload

Make = Callable[..., Prediction]

# --- a race on copies -------------------------------------------------------------------------------------------------


def test_devices_are_timed_in_turns_until_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = itertools.count()  # every reading of the clock is one second after the one before
    monkeypatch.setattr(measured, "time", SimpleNamespace(perf_counter=readings.__next__))
    results = race(make_workload(nn.Linear(4, 2), (3, 4)), ("cpu", "cpu:0"))
    assert [(time.step_seconds, time.timed) for time in results.values()] == [(1, 1)] * 2  # the least that counts
    with pytest.raises(RuntimeError):  # as the model does
        race(make_workload(nn.Linear(4, 2), (3, 5)), ("cpu",))


def test_a_step_is_what_the_trace_differentiates() -> None:
    """The model's own loss, where it gives one; nested outputs, and nothing where no parameter learns."""
    seen: list[Any] = []

    def forward(self: Any, ids: Tensor) -> dict[str, Any]:
        logits = self.embedding(ids)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: seen.append(gradient.unique().tolist()))
        return {"loss": 3.0 * logits.sum(), "logits": [logits], "n": 3}

    class Update(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.append("update")

    ids, model = torch.empty(2, 5, dtype=torch.int64, device="meta"), module(forward, embedding=nn.Embedding(10, 4))
    for mode, expected in (("train", [[3.0], "update"]), ("infer", [])):
        seen.clear()
        step_on(make_workload(model, batch=ids, mode=mode, optimizer=Update(model.parameters(), lr=0.1)), "cpu")()
        assert seen == expected
    step_on(make_workload(model.requires_grad_(requires_grad=False), batch=ids, mode="train"), "cpu")()
    step_on(make_workload(nn.Flatten(), (3, 4), mode="train"), "cpu")()  # has nothing to learn
    assert seen == []


def mine(*_: object) -> None: ...


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 2))
    net[0].register_forward_hook(partial(mine, 1))
    return net


def replaced() -> nn.Module:
    net = nn.Linear(4, 2)
    net.forward = lambda x, old=net.forward: old(x)  # type: ignore[method-assign]
    return net


# --- what they change of a table --------------------------------------------------------------------------------------

TableOf = Callable[..., Table]


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
    full = table_of(cpu, make_prediction("cuda", 1.2, fits=False))
    for table, measure in ((table_of(cpu), "always"), (full, "always"), (clear, "unsure")):
        assert with_measured(table, workload, measure) is table
    assert raced == []
    three = cpu, make_prediction("cuda", 3.0, low=cpu.high), make_prediction("cuda:1", 9.0)
    after = with_measured(table_of(*three), workload, "unsure")
    assert (after.decide().device, after.costs["cuda:1"]) == ("cuda", table_of(*three).costs["cuda:1"])
    with_measured(table_of(*three), workload, "always")
    # What is paid once counts where the steps are few: then the slower step may be the better choice.
    once = make_prediction("cpu", 1.0), make_prediction("cuda", 0.1, one_time_seconds=9.0)
    with_measured(table_of(*once, repeats=10), workload, "unsure")
    with_measured(table_of(*once, repeats=1000), workload, "unsure")
    assert [devices[:-1] for devices in raced] == [("cpu", "cuda"), ("cpu", "cuda", "cuda:1"), ("cpu", "cuda")]


def test_a_race_decides_says_so_and_is_remembered(
    table_of: TableOf, make_prediction: Make, workload: Workload, raced: list[tuple[str, ...]]
) -> None:
    threads = torch.get_num_threads()
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cuda", 1.1))
    after = with_measured(table, workload, "unsure")
    assert (table.decide().device, after.decide().device, after.predicted) == ("cpu", "cuda", table)
    assert after.decide().reason.endswith("(measured on cpu and cuda)")
    assert {name: p.step_seconds for name, p in after.costs.items()} == {"cpu": 2.0, "cuda": 1.0}
    assert "were measured on this machine" in after.parts[0].notes[0]
    assert (raced[0][2], torch.get_num_threads()) == ("2", threads)  # it ran with those the CPU's prediction is for
    for entry, device, seconds, predicted in zip(history.last(2), ("cpu", "cuda"), (2.0, 1.0), (1.0, 1.1), strict=True):
        assert (entry["kind"], entry["workload"], entry["network"], entry["batch"]) == ("steps", "key", "network", 64)
        assert (entry["device"], entry["step_seconds"], entry["priced_seconds"]) == (device, seconds, predicted)


def in_place() -> nn.Module:
    compiled = nn.Linear(4, 2)
    compiled.compile(backend="eager")
    return compiled


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.\nSee the manual")


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (in_place(), "a copy would have to be compiled again"),
        (hooked(), "copies of the model would call mine too"),
        (replaced(), "copies of the model would call replaced.<locals>.<lambda> too"),
        (Raises(), "OutOfMemoryError: CUDA out of memory."),
    ],
)
def test_what_cannot_be_raced_keeps_what_was_predicted(
    net: nn.Module, said: str, table_of: TableOf, make_prediction: Make
) -> None:
    table = table_of(make_prediction("cpu", 1.0), make_prediction("cpu:0", 1.1))
    after = with_measured(table, make_workload(net, (3, 4)), "always")
    assert (after.decide(), after.costs, after.predicted) == (table.decide(), table.costs, None)
    assert after.notes[1] == f"the real step was not timed: {said}"


def test_a_hook_of_all_modules_is_shared_and_one_of_torchs_own_or_of_saving_is_not() -> None:
    saved, torchs = nn.Linear(4, 2), nn.utils.spectral_norm(nn.Linear(4, 2))
    saved.register_state_dict_post_hook(mine)  # not called in a step
    assert [shared_function(make_workload(net, (3, 4))) for net in (saved, torchs)] == [None, None]
    handle = nn.modules.module.register_module_forward_pre_hook(mine)
    assert shared_function(make_workload(nn.Linear(4, 2), (3, 4))) is not None
    handle.remove()
