"""Published pairs of compiled and eager steps."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from placer.calibration.published import base_network, read_compiled_pairs, spread_pairs

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "gpu-data"
shared = pytest.mark.skipif(not (FOLDER / "steps.csv.gz").is_file(), reason="no published measurements in ../shared")

ROW = {
    "source": "timm", "gpu": "NVIDIA GeForce RTX 4090", "gpu_count": "1", "host_cpu": "unknown",
    "torch_version": "2.4.0", "cuda": "12.4", "network": "timm:resnet50", "batch": "256", "input": "256x3x224x224",
    "dtype": "amp_fp16", "memory_format": "nchw", "mode": "infer", "optimizer": "none", "compiled": "no",
    "step_ms": "60.0", "gpu_active_ms": "", "notes": "src=benchmark", "gpu_norm": "RTX 4090",
}  # fmt: skip
NEUSIGHT = ("gpu", "model", "mode", "batch", "seq", "variant", "e2e_latency", "fw_latency", "bwall_latency")


def folder(path: Path, *rows: dict[str, str]) -> Path:
    """A collection of these rows."""
    with gzip.open(path / "steps.csv.gz", "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    (path / "e2e_neusight.csv").write_text(",".join(NEUSIGHT) + "\n", encoding="utf-8")
    return path


def test_a_compiled_row_stands_beside_the_eager_one_of_the_same_step(tmp_path: Path) -> None:
    (pair,) = read_compiled_pairs(folder(tmp_path, {}, {"compiled": "yes", "step_ms": "40.0"}))
    assert pair.eager.network == "timm:resnet50"
    assert pair.compiled_seconds == pytest.approx(0.040)
    assert pair.speed_up == pytest.approx(1.5)


@pytest.mark.parametrize(
    "other",
    [{"torch_version": "2.9.1"}, {"batch": "128"}, {"dtype": "fp32"}, {"memory_format": "nhwc"}, {"mode": "train"},
     {"gpu_norm": "RTX 3090"}, {"network": "timm:resnet18"}, {"compiled": "TorchScript"}],
)  # fmt: skip
def test_rows_of_other_steps_are_no_pair(tmp_path: Path, other: dict[str, str]) -> None:
    assert read_compiled_pairs(folder(tmp_path, {}, {"compiled": "yes", **other})) == []


def test_one_pair_of_each_network_is_taken_and_the_halves_share_no_network(tmp_path: Path) -> None:
    names = ["timm:resnet18", "timm:resnet18.a1_in1k", "timm:resnet34", "timm:vgg11", "timm:vgg13", "timm:vgg16"]
    rows = [{"network": name, "compiled": kind} for name in names for kind in ("no", "yes")]
    found = spread_pairs(read_compiled_pairs(folder(tmp_path, *rows)), 10)
    networks = sorted(base_network(pair.eager.network) for pair in found)
    assert networks == ["resnet18", "resnet34", "vgg11", "vgg13", "vgg16"]
    assert spread_pairs(found, 2) == found[:2]
    assert {pair.looked_at for pair in found} == {True, False}


@shared
def test_the_collection_has_a_thousand_pairs() -> None:
    pairs = read_compiled_pairs(FOLDER)
    assert len(pairs) > 1000
    halves = [{base_network(p.eager.network) for p in pairs if p.looked_at is half} for half in (True, False)]
    assert halves[0].isdisjoint(halves[1])
    assert all(0.3 < pair.speed_up < 12.0 for pair in pairs)
