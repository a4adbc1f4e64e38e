"""Published ops and steps of CPUs of many cores and Apple's chips, beside their prices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, step, write

from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machines import (
    MachineOp,
    is_held,
    profile_of,
    read_machine_ops,
    read_machine_steps,
)
from placer.calibration.lab.validators.machines import (
    HARNESS,
    harness_seconds,
    pairs,
    price_machine_steps,
    price_op,
    price_ops,
    ratio_lines,
    validate_machines,
)
from placer.errors import PlacerError
from placer.pricing import framework_seconds

ONE, MANY = {"in": [[1, 1, 1]]}, {"in": [[512, 512, 64]]}
SMALL, LARGE = {"in": [[1, 1, 1], [1, 1, 1]]}, {"in": [[512, 512, 64], [512, 512, 64]]}


def read(folder: Path, rows: Sequence[dict[str, Any]]) -> list[MachineOp]:
    return read_machine_ops(write(folder, rows))[0]


def test_an_op_is_priced_on_the_machine_of_its_row_and_what_cannot_be_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm = {"cpu": "m8g.4xlarge (Graviton4, Neoverse V2)", "cores": "16", "threads": "16"}
    apple = on_apple("relu", MANY, 9.0, 9.0)
    unknown = {**apple[1], "gpu": "Apple M99 GPU (MPS)"}
    rows = read(
        tmp_path,
        [op("add", LARGE, 900.0), op("add", LARGE, 900.0, **arm), *apple, unknown, op("frobnicate", SMALL, 1.0)],
    )
    found = list(price_ops(rows))
    assert [p.group for p in found] == ["x86, 24 cores", "Arm, 16 cores", "Apple CPUs", "MPS"]
    assert all(0.0 < p.low < p.predicted < p.high and p.family == "elementwise" for p in found)
    said = capsys.readouterr().err
    assert "1 ops left out: frobnicate cannot be mapped" in said
    assert "1 ops left out: no GPU is called 'Apple M99'" in said


def test_the_sources_harness_stands_for_the_python_of_a_step(tmp_path: Path) -> None:
    (row,) = read(tmp_path, [op("add", SMALL, 2.4)])
    trace = trace_call(row)
    fit = profile_of(row).fits[0]
    python = framework_seconds({"step": 1.0, "python_call": trace.python_calls}, fit.framework)
    extra = harness_seconds(row, trace, fit)
    assert extra == pytest.approx(HARNESS["pytorch operator_benchmark: x86"] - python)
    elsewhere = replace(row, source="mlx-benchmark")
    assert price_op(row, trace).predicted - price_op(elsewhere, trace).predicted == pytest.approx(extra)


def test_which_device_is_faster_counts_where_the_source_is_clear(tmp_path: Path) -> None:
    large, near, bound, other = {"in": [[4096, 4096]]}, {"in": [[64, 64]]}, {"in": [[10]]}, {"in": [[20]]}
    cpu, of_another_day = on_apple("exp", MANY, 9000.0, 900.0)
    rows = [
        *on_apple("exp", large, 9000.0, 900.0),
        *on_apple("sin", near, 100.0, 150.0),
        *on_apple("cos", bound, None, 150.0),
        *on_apple("tan", other, None, 2.0),
        {**cpu, "date": "2025-01-01"},
        {**of_another_day, "date": "2025-01-02"},
    ]
    priced = list(price_ops(read(tmp_path, rows)))
    assert [pair.is_clear for pair in pairs(priced)] == [True, False, True, False]
    (line,) = ratio_lines(priced)
    assert line.startswith("mps / CPU, 2x apart and more: 2 of 2 (100.0%) on the right side")


def test_steps_are_priced_with_the_threads_of_their_row(tmp_path: Path) -> None:
    network = "torchbench:phlippe_densenet"
    rows = [step(network, 40.0, batch="64"), step(network, 400.0, batch="64", threads="1")]
    many, one = price_machine_steps(read_machine_steps(write(tmp_path, steps=rows)))
    assert (many.group, one.group) == ("Xeon 8375C, 32 threads", "Xeon 8375C, 1 thread")
    assert many.predicted < one.predicted
    assert all(p.low < p.predicted < p.high for p in (many, one))


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [op("add", LARGE, 900.0), *on_apple("relu", MANY, 9000.0, 900.0), *on_apple("exp", ONE, None, 150.0)]
    steps = [step("torchbench:phlippe_densenet", 40.0), step("torchbench:phlippe_densenet", 41.0)]
    folder, output = write(tmp_path, rows, steps), tmp_path / "out" / "rows.jsonl"
    assert validate_machines(folder, steps=1, output=output) == 0
    shown = capsys.readouterr().out
    assert "4 published times of single ops" in shown  # the row without a figure is only in pairs
    assert all(f"| {heading} |" in shown for heading in ("Machines", "MPS", "Machine", "Steps", "Network"))
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(written) == 6
    names = [found["row"].get("name") or found["row"]["network"] for found in written]
    assert [found["held"] for found in written] == list(map(is_held, names))
    with pytest.raises(PlacerError, match="no published measurements in"):
        validate_machines(tmp_path / "nowhere")


def test_a_network_that_torchvision_does_not_have_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchvision")
    write(tmp_path, steps=[step("torchvision:resnet18 with a head of its own", 30.0, batch="1")])
    assert not list(price_machine_steps(read_machine_steps(tmp_path)))
    assert "1 steps left out: torchvision has no network" in capsys.readouterr().err


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")
def test_published_ops_have_prices() -> None:
    """All of one case a machine: bounds are those of docs/dev/accuracy-details.md, with room."""
    rows, _ = read_machine_ops(PUBLISHED)
    priced = list(price_ops([row for row in rows if not row.is_bound][::31]))
    assert {p.group for p in priced} == {"x86, 24 cores", "Arm, 16 cores", "other x86", "Apple CPUs", "MPS", "CUDA"}
    assert all(0.0 < p.low < p.predicted < p.high < 1e3 for p in priced)
    clear = [pair for pair in pairs(price_ops([row for row in rows if "MatMul" in row.name])) if pair.is_clear]
    assert sum(pair.is_right for pair in clear) > 0.7 * len(clear)
