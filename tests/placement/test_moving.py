"""Moving models, batches and optimizer state, each thing once; what a device refuses stays where it was, as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_sequence

import placer
from placer import machine
from placer.errors import PlacerError, PlacerWarning
from placer.placement import moving
from placer.placement.moving import (
    Refused,
    immovable,
    move,
    move_modules,
    move_optimizer,
    only_device,
    relocate,
    relocate_or_stay,
    same_device,
    target,
)
from placer.workload import Workload, make_workload

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor", "ignore:FSDP is switching"
)
# The meta device stands in for an accelerator: tensors really change device, without one.
META = torch.device("meta")


def test_what_is_there_already_is_not_copied_or_touched() -> None:
    calls: list[object] = []

    class Watched(nn.Linear):
        def _apply(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return super()._apply(*args, **kwargs)

    watched = Watched(2, 2)
    batch = {"x": torch.ones(2), "packed": pack_sequence([torch.ones(3, 2)])}
    assert move(batch, torch.device("cpu")) is batch
    move_modules([watched], torch.device("cpu"))
    assert calls == []
    move_modules([watched], META)
    assert watched.weight.device == META


def test_a_batch_that_moves_itself_comes_back_and_is_asked_only_where_it_is_elsewhere() -> None:
    class Points:
        def __init__(self) -> None:
            self.fields = {"x": torch.ones(2), "y": torch.ones(3)}
            self.asked: list[Any] = []

        def to(self, device: torch.device) -> None:
            self.asked.append(device)
            for name, tensor in self.fields.items():
                self.fields[name] = tensor.to(device)

    points = Points()
    assert move([points], torch.device("cpu"))[0] is points
    assert points.asked == []
    assert move([points], META)[0] is points
    assert {tensor.device for tensor in points.fields.values()} == {META}


@pytest.fixture
def _by_content() -> Iterator[None]:
    """Parameters stay the same objects on their way to the meta device, as on that to an accelerator."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_device_names_are_compared_without_a_context() -> None:
    assert same_device(torch.device("cuda"), torch.device("cuda:0"))
    assert not same_device(torch.device("cuda"), torch.device("cuda:1"))
    assert not same_device(torch.device("cuda"), torch.device("cpu"))
    assert same_device(torch.device("cpu"), torch.device("cpu:0"))
    # A name of a profile is one device, whichever is the current one.
    assert [str(target(name)) for name in ("cuda", "cuda:2", "mps", "cpu")] == ["cuda:0", "cuda:2", "mps", "cpu"]
    assert not torch.cuda.is_initialized()


def test_one_device_holds_all_or_none_is_the_only_one() -> None:
    here, there = nn.BatchNorm1d(2), nn.Linear(2, 2, device="meta")
    assert only_device([here]) == torch.device("cpu")
    assert only_device([there, there]) == META
    assert only_device([here, there]) is None
    assert only_device([nn.ReLU()]) is None
    here.running_mean = torch.zeros(2, device="meta")  # a buffer counts
    assert only_device([here]) is None


def test_counters_go_with_the_state_only_where_the_device_reads_them() -> None:
    """A counter that the host reads stays on the host, as it is."""
    optimizer = torch.optim.Adam(nn.Linear(2, 2, device="meta").parameters())
    parameter = optimizer.param_groups[0]["params"][0]
    for capturable, where in ((False, "cpu"), (True, "meta")):
        counter = torch.ones(())
        optimizer.state[parameter] = {"step": counter, "exp_avg": torch.ones(2, 2)}
        optimizer.param_groups[0]["capturable"] = capturable
        move_optimizer(optimizer)
        state = optimizer.state[parameter]
        assert (state["exp_avg"].device.type, state["step"].device.type) == ("meta", where)
        assert (state["step"] is counter) is not capturable


# --- onto a device, or back -------------------------------------------------------------------------------------------


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


@pytest.mark.usefixtures("_by_content")
def test_threads_are_the_cpus() -> None:
    _, optimizer, workload = trained()
    threads = torch.get_num_threads() + 1
    relocate(workload, optimizer, "meta", threads=threads)
    assert torch.get_num_threads() == threads - 1
    relocate(make_workload(nn.Linear(2, 2), (1, 2)), None, "cpu", threads=threads)
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("_by_content")
@pytest.mark.parametrize("fails_at", ["move_modules", "move_optimizer"])
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (torch.OutOfMemoryError("CUDA out of memory.\nSee the manual"), "free memory on meta or set PLACER_DEVICE=cpu"),
        (TypeError("no float64 on MPS"), "set PLACER_DEVICE=cpu"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_what_a_device_refuses_is_put_back(
    fails_at: str, error: BaseException, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer, workload = trained()
    objects = list(model.parameters())
    values = [t.clone() for t in held(model, optimizer)]
    real: dict[str, Any] = {"move_modules": move_modules, "move_optimizer": move_optimizer}

    def half_way(*given: Any) -> None:
        real[fails_at](*given)
        assert "meta" in devices(model, optimizer)
        raise error

    monkeypatch.setattr(moving, fails_at, half_way)
    if remedy:
        refused = relocate_or_stay(workload, optimizer, "meta", allowed=("cpu", "meta"))
        said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        assert refused == Refused("cpu", f"cpu: the move to meta failed ({said}); {remedy}")
    else:  # the user interrupts
        with pytest.raises(KeyboardInterrupt):
            relocate_or_stay(workload, optimizer, "meta", allowed=("cpu", "meta"))
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


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning", "ignore:.*torch.jit")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.jit.script(nn.BatchNorm1d(2)),
        lambda: torch.jit.trace(nn.BatchNorm1d(2).eval(), torch.ones(3, 2)),
        lambda: nn.BatchNorm1d(2),
        lambda: nn.LSTM(2, 2),  # keeps its weights in a list besides
    ],
    ids=["scripted", "traced", "a module", "recurrent"],
)
def test_modules_that_keep_their_tensors_elsewhere_are_put_back(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TorchScript keeps parameters and buffers in C++; without its content moved, a parameter is a new object."""
    model = make()
    held = [*model.parameters(), *model.buffers()]
    gradients = [torch.ones_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient

    def half_way(modules: Any, device: torch.device) -> None:
        for parameter in model.parameters():
            parameter.grad = None  # as torch leaves it where there is room for a parameter, and not for its gradient
        for module in modules:
            module.to(device)
        assert {t.device for t in (*model.parameters(), *model.buffers())} == {META}
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(moving, "move_modules", half_way)
    refused = relocate_or_stay(make_workload(model, (4, 2)), None, "meta", allowed=("cpu", "meta"))
    assert refused is not None
    assert refused.home == "cpu"
    now = [*model.parameters(), *model.buffers()]
    assert all(a is b for a, b in zip(now, held, strict=True))
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), gradients, strict=True))
    assert {t.device.type for t in (*now, *gradients)} == {"cpu"}


def test_where_torch_lets_nobody_see_a_parameter_s_memory_a_move_is_refused() -> None:
    """Under fake tensors, in which nothing can be moved; what is there already is."""
    model = nn.Linear(2, 2)
    workload = make_workload(model, (1, 2))
    with FakeTensorMode():
        assert relocate_or_stay(workload, None, "cpu", allowed=None) is None
        refused = relocate_or_stay(workload, None, "meta", allowed=("cpu", "meta"))
    assert refused is not None
    assert "FakeTensor" in refused.reason
    assert model.weight.device.type == "cpu"


@pytest.mark.usefixtures("_by_content")
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


# --- what cannot go everywhere works, or falls back with one warning, and stays where it is ---------------------------


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A distributed run of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group", "calibrated")
def test_fully_sharded_models_fall_back_with_one_warning_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside an accelerator that would win every comparison, and to which nothing could be moved."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(machine, "known_free_memory", lambda _: 10**10)
    mesh = init_device_mesh("cpu", (1,))
    for model in (fully_shard(net(), mesh=mesh), FullyShardedDataParallel(net(), device_id=torch.device("cpu"))):
        with pytest.warns(PlacerWarning) as caught:
            placement = placer.choose(model, (3, 4))
        assert len([w for w in caught if w.category is PlacerWarning]) == 1
        assert (placement.decision.device, placement.confidence) == ("cpu", None)
        assert "not to be moved" in placement.reason
        model(torch.randn(3, 4)).sum().backward()


class On(nn.Module):
    """A module whose parameters say that they are on other devices, in a process that has none."""

    def __init__(self, *homes: str) -> None:
        super().__init__()
        self.homes = homes

    def parameters(self, recurse: bool = True) -> Any:
        return iter([SimpleNamespace(device=torch.device(home), is_meta=home == "meta") for home in self.homes])


def test_a_model_that_was_spread_by_hand_stays_as_it_is() -> None:
    assert immovable([On("cuda:0", "cuda:0"), On("cuda:1")]) is None  # each of them can be moved
    assert immovable([On("cuda:0", "cuda:1", "cpu")]) == ("cuda", "its weights are on cuda and cuda:1 and cpu")
    assert immovable([On("meta", "cpu", "cuda:1")]) == ("cpu", "its weights are on meta and cpu and cuda:1")
    assert immovable([On("meta")]) == (None, "its weights are on meta")
    assert immovable([net(), nn.LSTM(3, 3), nn.LazyLinear(3)]) is None
    late = nn.BatchNorm1d(2, affine=False, device="meta")
    assert immovable([late]) == (None, "its weights are on meta")
