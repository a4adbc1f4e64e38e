"""``--what-if`` with a GPU of the catalog, on a machine without one: both devices, what they rest on, the crossover."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from click.testing import Result

from placer.pricing import device_model
from placer.profile import save
from placer.profile.profile import Profile

Run = Callable[..., Result]
OWN = ("--profile", "amd-epyc-2-core")
#: A time, a share or a bar: what another fit of the published measurements changes.
FIGURE = re.compile(r"~?[\d.,]+ (?:s|ms|µs|ns)\b|\d+%|[█▏▎▍▌▋▊▉]+")
MARKS = {"published": "†", "data sheet": "‡"}
ORIGIN = {
    "published": "from published measurements (no calibration)",
    "data sheet": "from its data sheet and measurements of other GPUs (no calibration)",
}
GPUS = pytest.mark.parametrize(("asked", "called"), [("T4", "Tesla T4"), ("RTX 4090", "RTX 4090")])


def masked(text: str) -> list[str]:
    """The lines of a text without figures, blanks squeezed."""
    return [re.sub(r"\s+", " ", FIGURE.sub("", line)).strip() for line in text.splitlines()]


@GPUS
def test_text(run: Run, nets: str, asked: str, called: str) -> None:
    result = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", asked)
    provenance = device_model(asked).provenance
    head = f"cuda@{called} {MARKS[provenance]}"
    lines = masked(result.stdout)
    assert result.stdout.startswith(f"cuda@{called}: ")
    for line in (
        f"layer cpu {head} share", f"family calls cpu {head} guess", f"cpu {head}", f"numbers calibrated {provenance}"
    ):  # fmt: skip
        assert line in lines
    assert sum(line.startswith(f"{MARKS[provenance]} from ") for line in lines) == 1
    notes = result.stdout.replace("\n  ", " ")
    assert f"{ORIGIN[provenance]}; host speed from a calibration of AMD EPYC" in notes
    assert max(map(len, result.stdout.splitlines())) <= 100


@GPUS
def test_json(run: Run, nets: str, asked: str, called: str) -> None:
    text = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", asked, "--format", "json").stdout
    devices = json.loads(text)["devices"]
    assert list(devices) == ["cpu", f"cuda@{called}"]
    assert [row["provenance"] for row in devices.values()] == ["calibrated", device_model(asked).provenance]
    gpu = devices[f"cuda@{called}"]
    assert gpu["fits"]
    assert gpu["one_time_seconds"] > 0.0


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


def test_what_does_not_fit_in_its_memory_is_told(run: Run, nets: str) -> None:
    text = run("explain", f"{nets}:wide", "--batch", "2000000,84", *OWN, "--what-if", "T4", "--format", "json").stdout
    assert json.loads(text)["devices"]["cuda@Tesla T4"]["fits"] is False


def test_two_gpus_beside_a_machine(run: Run, nets: str) -> None:
    text = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--profile", "T4", "--profile", "A100", "--format",
               "json").stdout  # fmt: skip
    assert list(json.loads(text)["devices"]) == ["cpu", "cuda@Tesla T4", "cuda@A100-SXM4-40GB"]


def test_a_gpu_alone(run: Run, nets: str) -> None:
    text = run("explain", f"{nets}:wide", "--batch", "32,84", "--profile", "T4").stdout
    assert text.startswith("cuda: ")
    assert "host speed as usual in published measurements" in text.replace("\n  ", " ")


def test_this_machines_calibration_is_named(run: Run, nets: str, handmade_profile: Profile) -> None:
    save(handmade_profile)
    text = run("explain", f"{nets}:wide", "--batch", "32,84", "--device", "cpu", "--what-if", "T4").stdout
    assert "host speed from this machine's calibration" in text.replace("\n  ", " ")


def test_an_unknown_name(run: Run, nets: str) -> None:
    error = run("explain", f"{nets}:wide", "--batch", "32,84", *OWN, "--what-if", "RTX 4099", code=1).stderr
    says = ("no GPU is called 'RTX 4099'", "RTX 4090", "placer profile list", "placer gpus")
    assert all(part in error for part in says)
