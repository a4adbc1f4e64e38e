"""Published ops and steps of CPUs of many cores and Apple's chips: read, traced as their sources call them, priced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, step, write

from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machine_steps import network_of
from placer.calibration.lab.published.machines import (
    MachineOp,
    MachineStep,
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
from placer.errors import PlacerError, TraceError
from placer.pricing.framework import framework_seconds

ONE, MANY = {"in": [[1, 1, 1]]}, {"in": [[512, 512, 64]]}
SMALL, LARGE = {"in": [[1, 1, 1], [1, 1, 1]]}, {"in": [[512, 512, 64], [512, 512, 64]]}
PAIR = {"in": [[64, 64], [64, 64]]}
DENSENET = "torchbench:phlippe_densenet"
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")


def read(folder: Path, *rows: dict[str, Any]) -> list[MachineOp]:
    return read_machine_ops(write(folder, rows))[0]


def read_steps(folder: Path, *rows: dict[str, Any]) -> list[MachineStep]:
    return read_machine_steps(write(folder, steps=rows))


def test_a_row_says_what_was_timed_and_where(tmp_path: Path) -> None:
    own, cpu, mps = read(tmp_path, op("add", PAIR, 14.5), *on_apple("Add / 64", PAIR, None, 150.0))
    assert (own.name, own.device, own.threads, own.seconds) == ("add_cpu", "cpu", 24, pytest.approx(14.5e-6))
    assert (mps.device, mps.machine, mps.host, mps.cores) == ("mps", "Apple M4 Max", "Apple M4 Max", 40)
    assert (cpu.host, cpu.name, cpu.date) == (mps.host, mps.name, mps.date)
    assert (cpu.is_bound, cpu.seconds, mps.is_bound) == (True, pytest.approx(5e-6), False)
    amp = {"cpu": "Intel Xeon Platinum 8488C (Sapphire Rapids) or 8375C: not stated", "cores": ""}
    one, other, chip = read_steps(
        tmp_path,
        step("torchvision:resnet50", 160.0, input="3x224x224"),
        step("torchvision:resnet50", 16.0, threads="all of a socket", dtype="amp (bfloat16)", **amp),
        step("net", 5.0, cpu="Apple M3", cores="8", gpu="Apple M3 GPU 10-core (MPS)", threads=""),
    )
    assert (one.machine, one.threads, one.seconds) == ("Intel Xeon Platinum 8375C @ 2.90GHz", 32, pytest.approx(0.16))
    assert (other.threads, network_of(other).dtype) == (48, "amp-bfloat16")
    assert (chip.device, chip.machine, chip.host, chip.cores, chip.threads) == (
        "mps", "Apple M3 10-core", "Apple M3", 10, 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ("ARTEFACT: 100 to 500 times too long; do not use", "artefact"),
        ("mean of 5; the process had about one core: Linear at 44", "about one core"),
        ("the machine was disturbed", "machine disturbed"),
        ("no-op: returns self; the harness alone", "does nothing"),
        ("a view; no data moved", "a view"),
    ],
)
def test_rows_that_are_not_to_be_used_are_counted_by_reason(tmp_path: Path, notes: str, reason: str) -> None:
    kept = op("linear", PAIR, 20.0, "weight is a transposed view; printed to 0.01 ms")
    rows, left_out = read_machine_ops(write(tmp_path, [op("add", PAIR, 9.0, notes), kept]))
    assert [row.op for row in rows] == ["linear"]
    assert left_out == {reason: 1}


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


def test_the_sources_harness_stands_for_the_python_of_a_step(tmp_path: Path) -> None:
    (row,) = read(tmp_path, op("add", SMALL, 2.4))
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
    priced = list(price_ops(read(tmp_path, *rows)))
    assert [pair.is_clear for pair in pairs(priced)] == [True, False, True, False]
    (line,) = ratio_lines(priced)
    assert line.startswith("mps / CPU, 2x apart and more: 2 of 2 (100.0%) on the right side")


def test_steps_are_priced_with_the_threads_of_their_row(tmp_path: Path) -> None:
    rows = [step(DENSENET, 40.0, batch="64"), step(DENSENET, 400.0, batch="64", threads="1")]
    many, one = price_machine_steps(read_steps(tmp_path, *rows))
    assert (many.group, one.group) == ("Xeon 8375C, 32 threads", "Xeon 8375C, 1 thread")
    assert many.predicted < one.predicted
    assert all(p.low < p.predicted < p.high for p in (many, one))


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [op("add", LARGE, 900.0), *on_apple("relu", MANY, 9000.0, 900.0), *on_apple("exp", ONE, None, 150.0)]
    folder = write(tmp_path, rows, [step(DENSENET, 40.0), step(DENSENET, 41.0)])
    output = tmp_path / "out" / "rows.jsonl"
    assert validate_machines(folder, steps=1, output=output) == 0
    shown = capsys.readouterr().out
    assert "4 published times of single ops" in shown  # the row without a figure is only in pairs
    assert all(f"| {heading} |" in shown for heading in ("Machines", "MPS", "Machine", "Steps", "Network"))
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 6
    names = [line["row"].get("name") or line["row"]["network"] for line in lines]
    assert [line["held"] for line in lines] == list(map(is_held, names))
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


@published
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
