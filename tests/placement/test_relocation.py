"""Onto a device, or back: what a device refuses stays where it was, as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from placer.errors import PlacerError
from placer.placement import relocation
from placer.placement.moving import move_modules, move_optimizer
from placer.placement.relocation import Refused, relocate, relocate_or_stay
from placer.workload import Workload, make_workload

# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


@pytest.fixture(autouse=True)
def _by_content() -> Iterator[None]:
    """Parameters stay the same objects on their way to the meta device, as on that to an accelerator."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def trained() -> tuple[nn.Module, torch.optim.Optimizer, Workload]:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter)
    optimizer.step()
    return model, optimizer, make_workload(model, (4, 2), optimizer=optimizer)


def held(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [*model.parameters(), *(p.grad for p in model.parameters()), *model.buffers(), *states]


def devices(model: nn.Module, optimizer: torch.optim.Optimizer) -> set[str]:
    """But for step counters, which stay with the host."""
    return {t.device.type for t in held(model, optimizer) if t.dim()}


def test_a_workload_goes_with_its_optimizer() -> None:
    model, optimizer, workload = trained()
    parameters = list(model.parameters())
    relocate(workload, optimizer, "meta")
    assert devices(model, optimizer) == {"meta"}
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


def test_what_is_known_to_be_there_is_not_walked_through() -> None:
    model, optimizer, workload = trained()
    relocate(workload, None, "meta", known=META)
    assert devices(model, optimizer) == {"cpu"}
    relocate(workload, None, "meta", known=torch.device("cpu"))
    assert "meta" in devices(model, optimizer)


def test_threads_are_the_cpus() -> None:
    _, optimizer, workload = trained()
    threads = torch.get_num_threads() + 1
    relocate(workload, optimizer, "meta", threads=threads)
    assert torch.get_num_threads() == threads - 1
    relocate(make_workload(nn.Linear(2, 2), (1, 2)), None, "cpu", threads=threads)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("fails_at", ["move_modules", "move_optimizer"])
@pytest.mark.parametrize(("error", "remedy"), [
    (torch.OutOfMemoryError("CUDA out of memory.\nSee the manual"), "free memory on meta or set PLACER_DEVICE=cpu"),
    (TypeError("no float64 on MPS"), "set PLACER_DEVICE=cpu"),
    (ValueError("a backend's own"), "set PLACER_DEVICE=cpu"),
])  # fmt: skip
def test_what_a_device_refuses_is_put_back(
    fails_at: str, error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer, workload = trained()
    objects = list(model.parameters())
    values = [t.clone() for t in held(model, optimizer)]
    real: dict[str, Any] = {"move_modules": move_modules, "move_optimizer": move_optimizer}

    def half_way(what: Any, device: torch.device) -> None:
        real[fails_at](what, device)
        assert "meta" in devices(model, optimizer)
        raise error

    monkeypatch.setattr(relocation, fails_at, half_way)
    refused = relocate_or_stay(workload, optimizer, "meta", allowed=("cpu", "meta"))
    said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert refused == Refused("cpu", f"cpu: the move to meta failed ({said}); {remedy}")
    assert all(a is b for a, b in zip(model.parameters(), objects, strict=True))
    for found, expected in zip(held(model, optimizer), values, strict=True):
        assert torch.equal(found, expected)
    # Where it may not stay, or the caller wants to know, it is an error; and everything is back all the same.
    with pytest.raises(type(error)):
        relocate_or_stay(workload, optimizer, "meta", allowed=("meta",))
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(type(error)):
        relocate_or_stay(workload, optimizer, "meta", allowed=None)
    assert devices(model, optimizer) == {"cpu"}


def test_what_the_user_interrupts_is_put_back_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, workload = trained()

    def half_way(*what: Any) -> None:
        move_modules(*what)
        raise KeyboardInterrupt

    monkeypatch.setattr(relocation, "move_modules", half_way)
    with pytest.raises(KeyboardInterrupt):
        relocate_or_stay(workload, optimizer, "meta", allowed=None)
    assert devices(model, optimizer) == {"cpu"}


def test_what_has_no_memory_is_left_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a model on the meta device, or some of it, as with weights that are offloaded."""
    model = nn.Sequential(nn.Linear(2, 2, device="meta"), nn.Linear(2, 2, device="meta"))
    workload = make_workload(model, (1, 2))
    assert relocate_or_stay(workload, None, "cpu", allowed=("cpu",)) == Refused(
        "cpu", "cpu: the model was not moved, as its weights are on meta"
    )
    relocate(workload, None, "cpu")
    assert {p.device for p in model.parameters()} == {META}
    model[0] = nn.Linear(2, 2)
    assert relocate_or_stay(workload, None, "cuda", allowed=("cuda",)) == Refused(
        "cpu", "cpu: the model was not moved, as its weights are on cpu and meta"
    )
    assert relocate_or_stay(workload, None, "cpu", allowed=("cpu",)) is None  # as it was decided
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(PlacerError, match="not moved"):
        relocate_or_stay(workload, None, "cuda", allowed=None)
    assert {p.device for p in model[0].parameters()} == {torch.device("cpu")}


def test_a_workload_that_is_there_takes_its_optimizer_along() -> None:
    model, optimizer, workload = trained()
    relocate(workload, None, "meta")
    assert devices(model, optimizer) == {"cpu", "meta"}
    assert relocate_or_stay(workload, optimizer, "meta", allowed=("cpu",)) is None
    assert devices(model, optimizer) == {"meta"}


def test_a_dtype_that_a_device_lacks_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MPS raises for float64 is a TypeError."""

    def refuse(*_: object) -> None:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")

    monkeypatch.setattr(relocation, "move_modules", refuse)
    workload = make_workload(nn.Linear(2, 2, dtype=torch.float64), example=torch.ones(1, 2, dtype=torch.float64))
    refused = relocate_or_stay(workload, None, "mps", allowed=("cpu", "mps"))
    assert refused is not None
    assert refused.home == "cpu"
    assert refused.reason.endswith("set PLACER_DEVICE=cpu")
    assert "free memory" not in refused.reason
