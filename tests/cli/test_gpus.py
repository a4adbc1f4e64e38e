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
    *figures, known, _, _ = t4.removeprefix("Tesla T4").split()
    assert figures == ["2018", "40", "8.14", "65.1", "320", "4", "16"]
    assert known == "published"
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_one_gpu_is_a_whole_sheet(run: Run) -> None:
    text = run("gpus", "RTX", "4090").stdout
    assert text.startswith("NVIDIA GeForce RTX 4090\n")
    shown = ("82.6 TFLOP/s", "165 TFLOP/s", "1,008 GB/s", "L2 72 MB", "4.0 x16", "AD102, ada, 8.9, 2022", "published (")
    assert all(part in text for part in shown)
    assert run("gpus", "rtx4090").stdout == text
    shared = run("gpus", "M2 Ultra").stdout
    assert "shared with the host" in shared
    assert "last level 96 MB" in shared


def test_json_has_every_field(run: Run) -> None:
    one = json.loads(run("gpus", "T4", "--format", "json").stdout)
    assert one["schema"] == 1
    assert one["gpus"][0]["name"] == "Tesla T4"
    assert one["gpus"][0]["tensor_float16_tflops"] == 65.13
    assert one["gpus"][0]["knowledge"] == knowledge("Tesla T4")
    assert knowledge("Tesla T4").startswith("published (")
    assert knowledge("NVIDIA L4") == "data sheet"
    everything = json.loads(run("gpus", "--format", "json").stdout)
    assert [row["name"] for row in everything["gpus"]] == list(gpus())


def test_an_unknown_gpu_lists_the_closest(run: Run) -> None:
    error = run("gpus", "RTX", "4085", code=1).stderr
    assert "no GPU is called 'RTX 4085'" in error
    assert "NVIDIA GeForce RTX 4080" in error
