from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import Result

from placer.profile import gpus, knowledge

Run = Callable[..., Result]


def test_the_table_has_a_line_for_every_gpu(run: Run) -> None:
    header, *lines = run("gpus").stdout.splitlines()
    assert header.split() == ["name", "year", "SMs", "float32", "tensor", "GB/s", "L2", "MB", "GB", "knowledge"]
    assert [line.partition("  ")[0] for line in lines[: len(gpus())]] == list(gpus())
    (t4,) = [line for line in lines if line.startswith("Tesla T4 ")]
    assert t4.removeprefix("Tesla T4").split()[:8] == ["2018", "40", "8.14", "65.1", "320", "4", "16", "published"]
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_one_gpu_is_a_whole_sheet(run: Run) -> None:
    text = run("gpus", "RTX", "4090").stdout
    assert text.startswith("NVIDIA GeForce RTX 4090\n")
    shown = ("82.6 TFLOP/s", "165 TFLOP/s", "1,008 GB/s", "L2 72 MB", "4.0 x16", "AD102, ada, 8.9, 2022", "published (")
    assert all(part in text for part in shown)
    shared = run("gpus", "M2 Ultra").stdout
    assert "shared with the host" in shared
    assert "last level 96 MB" in shared
    error = run("gpus", "RTX", "4085", code=1).stderr
    assert "no GPU is called 'RTX 4085'" in error
    assert "NVIDIA GeForce RTX 4080" in error


def test_json_has_every_field(run: Run) -> None:
    found = json.loads(run("gpus", "--format", "json").stdout)
    assert (found["schema"], [row["name"] for row in found["gpus"]]) == (1, list(gpus()))
    (t4,) = json.loads(run("gpus", "T4", "--format", "json").stdout)["gpus"]
    assert (t4["tensor_float16_tflops"], t4["knowledge"]) == (65.13, knowledge("Tesla T4"))
