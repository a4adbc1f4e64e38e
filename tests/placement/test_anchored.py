"""Modules that cannot go everywhere: they work, or they fall back with one warning, and stay where they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parameter import is_lazy

import placer
from placer import machine
from placer.errors import PlacerWarning
from placer.placement.relocation import anchor, immovable
from placer.profile.profile import Profile

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:torch.quantize_per_tensor", "ignore:FSDP is switching"
)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def _beside_an_accelerator(calibrated: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that would win every comparison, and to which nothing could be moved."""
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(machine, "known_free_memory", lambda _: 10**10)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A distributed run of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def silently(function: Callable[[], placer.Placement]) -> placer.Placement:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlacerWarning)
        return function()


def test_a_quantized_model_stays_on_the_cpu() -> None:
    model = torch.ao.quantization.quantize_dynamic(net(), {nn.Linear}, dtype=torch.qint8)
    placement = silently(lambda: placer.choose(model, (3, 4), mode="infer"))
    assert list(placement.predictions) == ["cpu"]
    assert any("is quantized for the CPU" in note for note in placement.explain().notes)
    assert model(placement.to(torch.randn(3, 4))).shape == (3, 2)


@pytest.mark.usefixtures("group")
def test_a_model_wrapped_for_ddp_stays_where_it_is() -> None:
    model = nn.parallel.DistributedDataParallel(net())
    placement = silently(lambda: placer.choose(model, (3, 4)))
    assert placement.device == "cpu"
    assert any("choose before that" in note for note in placement.explain().notes)
    model(torch.randn(3, 4)).sum().backward()


@pytest.mark.usefixtures("group")
def test_fully_sharded_models_fall_back_with_one_warning_and_stay() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def sharded_net() -> nn.Module:
        return fully_shard(net(), mesh=init_device_mesh("cpu", (1,)))

    def runs(model: nn.Module) -> bool:
        try:
            model(torch.randn(3, 4)).sum().backward()
        except AttributeError:  # torch 2.6: the CPU's streams lack what fully_shard asks of them
            return False
        return True

    sharded, works = sharded_net(), runs(sharded_net())
    for model in (sharded, FullyShardedDataParallel(net(), device_id=torch.device("cpu"))):
        with pytest.warns(PlacerWarning) as caught:
            placement = placer.choose(model, (3, 4))
        assert len([w for w in caught if w.category is PlacerWarning]) == 1
        assert (placement.device, placement.confidence) == ("cpu", None)
        assert "not to be moved" in placement.reason
        assert runs(model) or (model is sharded and not works)


def test_lazy_modules_are_priced_and_stay_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 2))
    placement = silently(lambda: placer.choose(model, (3, 4), devices="cpu"))
    assert placement.confidence == 1.0
    assert is_lazy(model[0].weight)
    model(placement.to(torch.randn(3, 4)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:`torch.jit")
def test_scripted_modules_work() -> None:
    model = torch.jit.script(net())
    placement = silently(lambda: placer.choose(model, (3, 4), devices="cpu"))
    assert placement.confidence == 1.0
    assert model(torch.randn(3, 4)).shape == (3, 2)


@pytest.mark.parametrize("ran_before", [False, True])
def test_wrapped_work(ran_before: bool) -> None:
    torch._dynamo.reset()
    model = torch.compile(net(), backend="eager")
    if ran_before:
        model(torch.randn(3, 4))
    placement = silently(lambda: placer.choose(model, (3, 4), devices="cpu"))
    assert placement.confidence == 1.0
    model(torch.randn(3, 4)).sum().backward()
    torch._dynamo.reset()


class On(nn.Module):
    """A module whose parameters say that they are on other devices, in a process that has none."""

    def __init__(self, *homes: str) -> None:
        super().__init__()
        self.homes = homes

    def parameters(self, recurse: bool = True) -> Any:
        return iter([SimpleNamespace(device=torch.device(home), is_meta=home == "meta") for home in self.homes])


def test_a_model_that_was_spread_by_hand_stays_as_it_is() -> None:
    assert anchor([On("cuda:0", "cuda:0"), On("cuda:1")]) is None  # each of them can be moved
    assert anchor([On("cuda:0", "cuda:1", "cpu")]) == ("cuda", "its weights are on cuda and cuda:1 and cpu")
    assert anchor([On("meta", "cpu", "cuda:1")]) == ("cpu", "its weights are on meta and cpu and cuda:1")
    assert anchor([On("meta")]) is None  # it may get its memory anywhere
    assert immovable([On("meta")]) == (None, "its weights are on meta")
    late = nn.BatchNorm1d(2, affine=False, device="meta")
    assert immovable([late]) == (None, "its weights are on meta")


def test_ordinary_models_can_be_moved() -> None:
    models = [net(), nn.LSTM(3, 3), nn.LazyLinear(3)]
    assert (anchor(models), immovable(models)) == (None, None)
