"""``--what-if`` with a GPU of the catalog, on a machine without one: both devices, what they rest on, the crossover."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from placer.pricing import device_model
from placer.profile import save
from placer.profile.profile import Profile

Run = Callable[..., Result]
OWN = ("--profile", "amd-epyc-2-core")
MARKS = {"published": "†", "data sheet": "‡"}
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


def test_which_host_drives_it_is_told(run: Run, nets: str, handmade_profile: Profile) -> None:
    asked = ("explain", f"{nets}:wide", "--batch", "32,84")
    usual = run(*asked, "--profile", "T4", "--full").stdout.replace("\n  ", " ")
    assert "host speed typical of published measurements" in usual
    save(handmade_profile)
    for arguments, host in (
        ((*OWN, "--what-if", "T4"), "host speed from a calibration of AMD EPYC"),
        (("--device", "cpu", "--what-if", "T4"), "host speed from this machine's calibration"),
    ):
        assert host in run(*asked, *arguments, "--full").stdout.replace("\n  ", " ")
    text = run(*asked, *OWN, "--profile", "T4", "--profile", "A100").stdout
    assert all(name in text for name in ("cpu", "cuda@Tesla T4 †", "cuda@A100-SXM4-40GB †"))


def test_a_sweep_shows_where_the_gpu_is_ahead(run: Run, nets: str) -> None:
    asked = ("explain", f"{nets}:medium", "--batch", "8,84", *OWN, "--what-if", "T4", "--sweep", "batch=1:65536",
             "--mode", "infer")  # fmt: skip
    text = run(*asked).stdout
    values = json.loads(run(*asked, "--format", "json").stdout)
    (first, last) = values["crossovers"]
    assert (first, last["choice"]) == ({"batch": 1, "choice": "cpu"}, "cuda@Tesla T4")
    verdicts = {row["batch"]: row["verdict"] for row in values["rows"]}
    clear = next(batch for batch, verdict in verdicts.items() if verdict == "cuda@Tesla T4")
    assert set(verdicts.values()) <= {"cpu", "about the same", "cuda@Tesla T4"}
    assert text.splitlines()[-1].startswith("cpu first; ")
    assert text.rstrip().endswith(f"; cuda@Tesla T4 from batch {clear:,} on.")
    provenance = device_model("T4").provenance
    assert {row["devices"]["cuda@Tesla T4"]["provenance"] for row in values["rows"]} == {provenance}
    assert f"cuda@Tesla T4 {MARKS[provenance]}" in text
    assert f"\n{MARKS[provenance]} from " in text


def test_an_unknown_name(run: Run, nets: str) -> None:
    error = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", "RTX 4099", code=1).stderr
    says = ("no GPU is called 'RTX 4099'", "RTX 4090", "placer profile list", "placer gpus")
    assert all(part in error for part in says)
