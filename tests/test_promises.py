"""The contract's promises to somebody who leaves ``choose`` in a training script, on models that make it hard."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from competing import compete
from pictures import changed
from random_scripts import Script, seed_all
from torch import nn
from users_modules import AROUND, CLASSES, HEADS, Around, Counted, Dropping, plain

import placer
from placer.errors import PlacerWarning
from placer.profile.profile import Profile

#: What is written round a layer, and what is written in place of one.
MODELS = [*((kind, plain) for kind in AROUND), *((Around, head) for head in HEADS)]


def script_of(kind: Callable[[nn.Module, list[Any]], nn.Module], head: Callable[[int], nn.Module]) -> Script:
    seed_all(0)
    records: list[Any] = []
    inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
    model = nn.Sequential(kind(inner, records), head(8))
    return Script(
        model,
        torch.randn(16, 4),
        torch.randint(0, CLASSES, (16,)),
        nn.functional.cross_entropy,
        torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad]),
        [],
        records,
        contextlib.nullcontext,
    )


def trained(script: Script, placed: bool) -> tuple[list[float], list[str]]:
    """The losses of some steps, before each of which placer is asked or is not, and what placer warned of."""
    seed_all(1)
    losses = []
    args, given = script.question()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            batch = script.batch
            if placed:
                before = script.state()
                batch = placer.choose(*args, **given, devices="cpu").to(batch)
                after = script.state()
                assert changed(before, after) == []
            losses.append(script.step(batch, script.target).item())
    return losses, [str(warning.message) for warning in caught if issubclass(warning.category, PlacerWarning)]


@pytest.mark.filterwarnings("ignore")  # the models' own
@pytest.mark.parametrize(("kind", "head"), MODELS, ids=lambda part: part.__name__)
def test_choose_never_breaks_a_training_script(
    kind: type[Around], head: Callable[[int], nn.Module], calibrated: Profile
) -> None:
    """Asked before every step, even: it changes nothing, and the losses are those without placer."""
    losses, warned = trained(script_of(kind, head), placed=True)
    assert losses == trained(script_of(kind, head), placed=False)[0]
    assert all("placed on cpu without a prediction" in message for message in warned)


@pytest.mark.parametrize("value", ["cpu", " cpu ", "cpu:0"])
def test_placer_device_overrides_every_prediction(
    value: str, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_DEVICE", value)
    model = nn.Linear(4, 1)
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
    script = script_of(lambda inner, records: Dropping(Counted(inner, records), records), plain)
    always = placer.Options(measure="always")
    before = script.state()
    placement = placer.choose(
        script.model, script.batch, mode=mode, optimizer=script.optimizer, options=always, move=False
    )
    assert placement.reason.endswith("(measured on cpu and cpu:0)")
    after = script.state()
    assert changed(before, after) == []
