"""Published ops and steps of CPUs of many cores and Apple's chips: read, traced as their sources call them, priced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, step, write

from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machine_steps import network_of
from placer.calibration.lab.published.machines import (
    MachineOp,
    MachineStep,
    read_machine_ops,
    read_machine_steps,
)
from placer.calibration.lab.validators.machines import (
    pairs,
    price_ops,
    validate_machines,
)
from placer.errors import PlacerError, TraceError

ONE, MANY = {"in": [[1, 1, 1]]}, {"in": [[512, 512, 64]]}
SMALL, LARGE = {"in": [[1, 1, 1], [1, 1, 1]]}, {"in": [[512, 512, 64], [512, 512, 64]]}
DENSENET = "torchbench:phlippe_densenet"
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")


def read(folder: Path, *rows: dict[str, Any]) -> list[MachineOp]:
    return read_machine_ops(write(folder, rows))[0]


def read_steps(folder: Path, *rows: dict[str, Any]) -> list[MachineStep]:
    return read_machine_steps(write(folder, steps=rows))


@pytest.mark.parametrize(
    ("network", "changes", "why"),
    [
        ("torchbench:Super_SloMo", {}, "no installed package builds"),
        ("torchvision:resnet50", {"compiled": "yes"}, "compiled"),
        ("torchvision:resnet50", {"gpu": "NVIDIA T4"}, "GPU"),
        ("torchvision:resnet50", {"notes": "epoch time / steps; the loader is inside"}, "loader"),
        ("torchvision:resnet50", {"mode": "train"}, "loss and optimizer"),
        ("transformers:gpt2, AutoModelForCausalLM", {"input": "not checked"}, "number of tokens"),
    ],
)
def test_steps_that_are_left_out_say_why(tmp_path: Path, network: str, changes: dict[str, Any], why: str) -> None:
    (row,) = read_steps(tmp_path, step(network, 10.0, **changes))
    with pytest.raises(TraceError, match=why):
        network_of(row)


def test_an_op_is_priced_on_the_machine_of_its_row_and_what_cannot_be_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = {"cpu": "m8g.4xlarge (Graviton4, Neoverse V2)", "cores": "16", "threads": "16"}
    apple = on_apple("relu", MANY, 9.0, 9.0)
    unknown = {**apple[1], "gpu": "Apple M99 GPU (MPS)"}
    refused = op("frobnicate", SMALL, 1.0)
    rows = read(tmp_path, op("add", LARGE, 900.0), op("add", LARGE, 900.0, **arm), *apple, unknown, refused)
    priced = list(price_ops(rows))
    assert [p.group for p in priced] == ["x86, 24 cores", "Arm, 16 cores", "Apple CPUs", "MPS"]
    assert all(0.0 < p.low < p.predicted < p.high and p.family == "elementwise" for p in priced)
    said = capsys.readouterr().err
    assert "1 ops left out: frobnicate cannot be mapped" in said
    assert "1 ops left out: no GPU is called 'Apple M99'" in said


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [op("add", LARGE, 900.0), *on_apple("relu", MANY, 9000.0, 900.0), *on_apple("exp", ONE, None, 150.0)]
    folder = write(tmp_path, rows, [step(DENSENET, 40.0), step(DENSENET, 41.0)])
    output = tmp_path / "out" / "tables.md"
    assert validate_machines(folder, steps=1, output=output) == 0
    shown = capsys.readouterr().out
    assert "4 published times of single ops" in shown  # the row without a figure is only in pairs
    assert all(f"| {heading} |" in shown for heading in ("Machines", "MPS", "Machine", "Steps", "Network"))
    assert output.read_text(encoding="utf-8") == shown
    with pytest.raises(PlacerError, match=r"no published measurements in .*ops\.csv\.gz.*give the folder"):
        validate_machines(tmp_path / "nowhere")


@published
def test_nearly_every_published_row_can_be_mapped_and_has_a_price() -> None:
    rows, left_out = read_machine_ops(PUBLISHED)
    assert {"quantised", "about one core", "artefact"} <= left_out.keys()
    each = {row.call: row for row in rows}
    refused = []
    for row in each.values():
        try:
            assert trace_call(row).calls
        except TraceError as error:
            refused.append(str(error))
    assert set(refused) <= {"sparse gradients that add up"}
    assert len(refused) < 0.05 * len(each)
    priced = list(price_ops([row for row in rows if not row.is_bound][::31]))
    assert {p.group for p in priced} == {"x86, 24 cores", "Arm, 16 cores", "other x86", "Apple CPUs", "MPS", "CUDA"}
    assert all(0.0 < p.low < p.predicted < p.high < 1e3 for p in priced)
    clear = [pair for pair in pairs(price_ops([row for row in rows if "MatMul" in row.name])) if pair.is_clear]
    assert sum(pair.is_right for pair in clear) > 0.7 * len(clear)
