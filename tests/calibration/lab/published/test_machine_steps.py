"""Which network each published row of a whole step is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, step, write

from placer.calibration.lab.published.machine_steps import network_of
from placer.calibration.lab.published.machines import MachineStep, read_machine_steps
from placer.errors import TraceError


def rows(folder: Path, *given: dict[str, Any]) -> list[MachineStep]:
    return read_machine_steps(write(folder, steps=given))


def test_a_row_names_its_machine_and_threads(tmp_path: Path) -> None:
    amp = {"cpu": "Intel Xeon Platinum 8488C (Sapphire Rapids) or 8375C: not stated", "cores": ""}
    one, other, mps = rows(
        tmp_path,
        step("torchvision:resnet50", 160.0, input="3x224x224"),
        step("torchvision:resnet50", 16.0, threads="all of a socket", dtype="amp (bfloat16)", **amp),
        step("net", 5.0, cpu="Apple M3", cores="8", gpu="Apple M3 GPU 10-core (MPS)", threads=""),
    )
    assert (one.device, one.machine, one.threads) == ("cpu", "Intel Xeon Platinum 8375C @ 2.90GHz", 32)
    assert one.seconds == pytest.approx(0.16)
    assert (other.threads, network_of(other).dtype) == (48, "amp-bfloat16")
    assert (mps.device, mps.machine, mps.host, mps.cores, mps.threads) == ("mps", "Apple M3 10-core", "Apple M3", 10, 0)


@pytest.mark.parametrize(
    ("network", "changes", "why"),
    [
        ("torchbench:Super_SloMo", {}, "no installed package builds"),
        ("torchvision:resnet50", {"compiled": "yes"}, "compiled"),
        ("torchvision:resnet50", {"gpu": "NVIDIA T4"}, "GPU"),
        ("torchvision:resnet50", {"notes": "the two runs differ up to 6x: the machine was disturbed"}, "disturbed"),
        ("torchvision:resnet50", {"notes": "epoch time / steps; the loader is inside"}, "loader"),
        ("torchvision:resnet50", {"mode": "train"}, "loss and optimizer"),
        ("transformers:gpt2, AutoModelForCausalLM", {"input": "not checked"}, "number of tokens"),
    ],
)
def test_steps_that_are_left_out_say_why(tmp_path: Path, network: str, changes: dict[str, Any], why: str) -> None:
    (row,) = rows(tmp_path, step(network, 10.0, **changes))
    with pytest.raises(TraceError, match=why):
        network_of(row)


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
