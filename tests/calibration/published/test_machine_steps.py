"""Which network each published row of a whole step is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, step, write

from placer.calibration.published import trace_step
from placer.calibration.published.machine_steps import MachineStep, network_of, read_machine_steps
from placer.errors import TraceError

GN = "torchvision:resnet18 with GroupNorm, 10 classes (torchbench:functorch_dp_cifar10)"


def rows(folder: Path, *given: dict[str, Any]) -> list[MachineStep]:
    return read_machine_steps(write(folder, steps=given))


def test_a_row_names_its_machine_and_threads(tmp_path: Path) -> None:
    amp = {"cpu": "Intel Xeon Platinum 8488C (Sapphire Rapids) or 8375C: not stated", "cores": ""}
    one, other, mps = rows(
        tmp_path, step("torchvision:resnet50", 160.0, input="3x224x224"),
        step("torchvision:resnet50", 16.0, threads="all of a socket", dtype="amp (bfloat16)", **amp),
        step("net", 5.0, cpu="Apple M3", cores="8", gpu="Apple M3 GPU 10-core (MPS)", threads=""),
    )  # fmt: skip
    assert (one.device, one.machine, one.threads) == ("cpu", "Intel Xeon Platinum 8375C @ 2.90GHz", 32)
    assert one.seconds == pytest.approx(0.16)
    assert (other.threads, network_of(other).dtype) == (48, "amp-bfloat16")
    assert (mps.device, mps.machine, mps.host, mps.cores, mps.threads) == ("mps", "Apple M3 10-core", "Apple M3", 10, 0)


@pytest.mark.parametrize(("network", "changes", "builder", "inputs"), [
    ("torchvision:resnet50", {"input": "3x224x224"}, "torchvision", [[2, 3, 224, 224]]),
    (GN, {"input": "3x32x32"}, "torchvision", [[2, 3, 32, 32]]),
    ("timm:adv_inception_v3", {}, "timm", [[2, 3, 299, 299]]),
    ("torchbench:phlippe_densenet (DenseNet for 32x32)", {}, "plain", [[2, 3, 32, 32]]),
    ("torchbench:basic_gnn_gin", {}, "plain", [[10_000, 64], {"shape": [2, 200_000], "dtype": "int64"}]),
    ("transformers:t5-large, AutoModelForSeq2SeqLM", {"input": "not checked"}, "transformers", [
        {"shape": [2, 512], "dtype": "int64", "name": "input_ids"},
        {"shape": [2, 512], "dtype": "int64", "name": "decoder_input_ids"},
    ]),
    ("transformers:RobertaForCausalLM(RobertaConfig())", {"input": "128 tokens, labels given"}, "transformers", [
        {"shape": [2, 128], "dtype": "int64", "name": "input_ids"},
        {"shape": [2, 128], "dtype": "int64", "name": "labels"},
    ]),
])  # fmt: skip
def test_what_builds_a_network(
    tmp_path: Path, network: str, changes: dict[str, Any], builder: str, inputs: list[Any]
) -> None:
    (row,) = rows(tmp_path, step(network, 10.0, **changes))
    found = network_of(row)
    assert (found.builder, found.inputs, found.mode, found.data) == (builder, inputs, "infer", "device")


@pytest.mark.parametrize(("network", "changes", "why"), [
    ("torchbench:Super_SloMo", {}, "no installed package builds"),
    ("torchvision:resnet50", {"compiled": "yes"}, "compiled"),
    ("torchvision:resnet50", {"gpu": "NVIDIA T4"}, "GPU"),
    ("torchvision:resnet50", {"notes": "the two runs differ up to 6x: the machine was disturbed"}, "disturbed"),
    ("torchvision:resnet50", {"notes": "epoch time / steps; the loader is inside"}, "loader"),
    ("torchvision:resnet50", {"mode": "train"}, "loss and optimizer"),
    ("transformers:gpt2, AutoModelForCausalLM", {"input": "not checked"}, "number of tokens"),
])  # fmt: skip
def test_steps_that_are_left_out_say_why(tmp_path: Path, network: str, changes: dict[str, Any], why: str) -> None:
    (row,) = rows(tmp_path, step(network, 10.0, **changes))
    with pytest.raises(TraceError, match=why):
        network_of(row)


@pytest.mark.parametrize(("network", "parameters"), [
    ("3 x [Conv2d 64] (torchbench:maml_omniglot)", 75_205), ("torchbench:phlippe_densenet", 239_146),
    ("scvi-tools SCVI, defaults, 1200 genes", 469_028),
])  # fmt: skip
def test_networks_that_no_package_builds(tmp_path: Path, network: str, parameters: int) -> None:
    (row,) = rows(tmp_path, step(network, 10.0))
    traced = trace_step(network_of(row))
    assert sum(spec.numel for spec in traced.parameters) == parameters
    assert traced.mode == "infer"
    (other,) = rows(tmp_path, step(network, 10.0, mode="forward+backward, batch resident"))
    assert any(call.phase == "backward" for call in trace_step(network_of(other)).calls)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")
def test_most_eager_steps_of_the_dashboards_have_a_builder() -> None:
    built, refused = 0, 0
    for row in read_machine_steps(PUBLISHED):
        if row.source.startswith("pytorch inductor CPU") and not row.compiled:
            try:
                network_of(row)
                built += 1
            except TraceError:
                refused += 1
    assert built > refused > 0
