"""``placer profile`` and ``placer gpus``: what is known of machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from placer import profile
from placer.profile import Profile, gpus, knowledge

Run = Callable[..., Result]


def test_show_is_short_and_all_is_not(run: Run, calibrated: Profile) -> None:
    more = (dataclasses.replace(calibrated.fits[0], threads=calibrated.fits[0].threads + 1), *calibrated.fits)
    profile.save(dataclasses.replace(calibrated, fits=more))
    assert run("profile", "path").stdout == f"{profile.default_path()}\n"
    short, everything = run("profile", "show").stdout, run("profile", "show", "--all").stdout
    assert calibrated.fingerprint["cpu"] in short
    assert calibrated.created in short
    assert "stale" not in short
    assert short.count("\ncpu, ") == 1
    assert "per forward op" not in short
    assert "placer profile show --all" in short
    assert everything.count("\ncpu, ") == 2
    assert "10.0 µs per forward op" in everything


def test_export_and_import(run: Run, calibrated: Profile, tmp_path: Path) -> None:
    file = tmp_path / "lab server.json"
    run("profile", "export", str(file))
    assert profile.load(file).fits == calibrated.fits
    assert "--force" in run("profile", "export", str(file), code=1).stderr
    run("profile", "export", str(file), "--force")
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    assert "is no profile" in run("profile", "export", str(notes), "--force", code=1).stderr
    assert notes.read_text() == "precious"
    assert "not a profile name" in run("profile", "import", str(file), code=2).stderr
    assert run("profile", "import", str(file), "--name", "lab").stdout == "lab\n"
    assert "--force" in run("profile", "import", str(file), "--name", "lab", code=1).stderr
    listed = run("profile", "list").stdout
    assert "lab\timported\n" in listed
    assert f"{profile.default_path().stem}\tthis machine\n" in listed
    assert calibrated.fingerprint["cpu"] in run("profile", "show", "lab").stdout


def test_the_table_has_a_line_for_every_gpu_and_json_every_field(run: Run) -> None:
    header, *lines = run("gpus").stdout.splitlines()
    assert header.split() == ["name", "year", "SMs", "float32", "tensor", "GB/s", "L2", "MB", "GB", "knowledge"]
    assert [line.partition("  ")[0] for line in lines[: len(gpus())]] == list(gpus())
    (t4,) = [line for line in lines if line.startswith("Tesla T4 ")]
    assert t4.removeprefix("Tesla T4").split()[:8] == ["2018", "40", "8.14", "65.1", "320", "4", "16", "published"]
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)
    found = json.loads(run("gpus", "--format", "json").stdout)
    assert (found["schema"], [row["name"] for row in found["gpus"]]) == (1, list(gpus()))
    (row,) = json.loads(run("gpus", "T4", "--format", "json").stdout)["gpus"]
    assert (row["tensor_float16_tflops"], row["knowledge"]) == (65.13, knowledge("Tesla T4"))


def test_one_gpu_is_a_whole_sheet(run: Run) -> None:
    text = run("gpus", "RTX", "4090").stdout
    assert text.startswith("NVIDIA GeForce RTX 4090\n")
    shown = ("82.6 TFLOP/s", "165 TFLOP/s", "1,008 GB/s", "L2 72 MB", "4.0 x16", "AD102, ada, 8.9, 2022", "published (")
    assert all(part in text for part in shown)
    shared = run("gpus", "M2 Ultra").stdout
    assert "shared with the host" in shared
    assert "last level 96 MB" in shared
