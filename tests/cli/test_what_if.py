"""``--what-if`` with a GPU of the catalog, on a machine without one: both devices, what they rest on, the crossover."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from placer.pricing import device_model

Run = Callable[..., Result]
OWN = ("--profile", "amd-epyc-2-core")
GPUS = pytest.mark.parametrize(("asked", "called"), [("T4", "Tesla T4"), ("RTX 4090", "RTX 4090")])


@GPUS
def test_json(run: Run, nets: str, asked: str, called: str) -> None:
    text = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", asked, "--format", "json").stdout
    devices = json.loads(text)["devices"]
    assert list(devices) == ["cpu", f"cuda@{called}"]
    assert [row["provenance"] for row in devices.values()] == ["calibrated", device_model(asked).provenance]
    gpu = devices[f"cuda@{called}"]
    assert gpu["fits"]
    assert gpu["one_time_seconds"] > 0.0
    large = run("explain", f"{nets}:wide", "--batch", "2000000,84", *OWN, "--what-if", "T4", "--format", "json").stdout
    assert json.loads(large)["devices"]["cuda@Tesla T4"]["fits"] is False


def test_an_unknown_name(run: Run, nets: str) -> None:
    error = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", "RTX 4099", code=1).stderr
    says = ("no GPU is called 'RTX 4099'", "RTX 4090", "placer profile list", "placer gpus")
    assert all(part in error for part in says)
