"""What cannot run on a device is not put there, however fast the device would be, and the reason says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from on_simulated.two_devices import faster_on
from torch import nn

import placer
from placer import PlacerWarning, machine

pytestmark = pytest.mark.usefixtures("device")


def silently(*arguments: Any, fast: str, **options: Any) -> placer.Placement:
    """What ``choose`` answers, which warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlacerWarning)
        return placer.choose(*arguments, profile=faster_on(fast), **options)


def left_out(placement: placer.Placement, device: str) -> str:
    """Why a device is left out, which the reason, the text and JSON of an explanation say alike."""
    explanation = placement.explain()
    (told,) = (note for note in explanation.notes if note.startswith(f"{device} is left out: "))
    assert told in placement.reason
    assert told in explanation.to_dict()["notes"]
    assert told in explanation.to_text(width=1000, full=True)
    return told


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


# --- optimizers that exist on accelerators only -----------------------------------------------------------------------


def test_a_capturable_optimizer_does_not_go_to_the_cpu() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for placement in (
        silently(step, (32, 8), modules=model, fast="cpu"),
        silently(model, (32, 8), optimizer=optimizer, fast="cpu"),
    ):
        assert placement.decision.device == "sim"
        assert "Adam has capturable=True" in left_out(placement, "cpu")
    step(placement.to(torch.randn(32, 8)))


def test_where_no_device_can_run_it_a_warning_says_why() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    with pytest.warns(PlacerWarning, match="no device can run it; cpu is left out: Adam has capturable=True"):
        placement = placer.choose(model, (32, 8), optimizer=optimizer, profile=faster_on("cpu"), devices=["cpu"])
    assert (placement.decision.device, placement.confidence) == ("cpu", None)


# --- ops without a kernel ---------------------------------------------------------------------------------------------


def test_a_dtype_without_a_kernel_keeps_a_step_from_the_cpu() -> None:
    model = nn.Sequential(nn.Conv3d(1, 2, 3), nn.AvgPool3d(2)).half().eval()
    x = torch.randn(1, 1, 8, 8, 8).half()
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        model(x)
    placement = silently(model, x, fast="cpu")
    assert placement.decision.device == "sim"
    assert "the CPU has no aten::avg_pool3d for float16 (layer '1')" in left_out(placement, "cpu")
    assert silently(model.float(), x.float(), fast="cpu").decision.device == "cpu"


# --- models that are bound to a device --------------------------------------------------------------------------------


class Factory(nn.Module):
    """Adds zeros that it makes on its input's device, which a trace takes down as a constant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(x.shape[0], 8, device=x.device)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: torch.jit.trace(Factory(), torch.ones(4, 8)), "frozen or traced for cpu"),
        (lambda: torch.export.export(Factory(), (torch.ones(4, 8),)).module(), "exported for cpu"),
        (lambda: torch.jit.script(Factory()), ""),
        (lambda: torch.export.export(net().eval(), (torch.ones(4, 8),)).module(), ""),
    ],
)
def test_a_model_that_names_its_device_stays_there(made: Callable[[], nn.Module], said: str) -> None:
    """One that follows its input may be anywhere."""
    placement = silently(made(), (4, 8), mode="infer", fast="sim", move=False)
    assert placement.decision.device == ("cpu" if said else "sim")
    assert not said or said in left_out(placement, "sim")
    assert set(placement.predictions) == ({"cpu"} if said else {"cpu", "sim"})


def test_data_parallel_runs_on_its_first_device() -> None:
    model = nn.DataParallel(net())
    assert model.device_ids == [0]
    placement = silently(model, (4, 8), fast="cpu")
    assert placement.decision.device == "sim"
    assert "the model (DataParallel) needs its weights on sim" in left_out(placement, "cpu")
    assert placement.predictions["sim"].step_seconds > 0.0
    assert {parameter.device.type for parameter in model.parameters()} == {"sim"}


@pytest.fixture
def group(tmp_path: Path) -> Any:
    """A distributed run of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_no_name_moves_a_model_that_ddp_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.parallel.DistributedDataParallel(net())
    placement = silently(model, (4, 8), fast="sim")
    assert placement.decision.device == "cpu"
    assert "choose before that" in left_out(placement, "sim")
    with pytest.warns(PlacerWarning, match="sim cannot be used here .*choose before that"):
        assert placer.choose(model, (4, 8), profile=faster_on("sim"), devices=["sim"]).decision.device == "cpu"
    monkeypatch.setenv("PLACER_DEVICE", "sim")
    with pytest.warns(PlacerWarning, match="placed on cpu; PLACER_DEVICE=sim: not to be moved: .*choose before that"):
        placement = placer.choose(model, (4, 8))
    assert placement.decision.device == "cpu"
    model(placement.to(torch.ones(4, 8))).sum().backward()
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.PlacerError, match="choose before that"):
        placer.choose(model, (4, 8))


def test_the_default_rule_leaves_what_is_bound_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "known_free_memory", lambda name: 10**9)
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(8, 2).eval()))
    with pytest.warns(PlacerWarning, match="without a prediction"):
        placement = placer.choose(frozen, (4, 9))  # of a size that it does not take
    assert placement.decision.device == "cpu"
    assert "frozen or traced for cpu" in placement.reason
