"""Published ops and steps of machines that nobody here has, beside their prices."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, step, write
from torch import nn

from placer.calibration.published.machine_calls import trace_call
from placer.calibration.published.machine_profiles import is_held, profile_of
from placer.calibration.published.machine_steps import read_machine_steps
from placer.calibration.published.machines import MachineOp, read_machine_ops
from placer.calibration.validation.machine_steps import price_machine_steps
from placer.calibration.validation.published_machines import (
    HARNESS,
    PricedOp,
    harness_seconds,
    pairs,
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


def test_an_op_is_priced_on_the_machine_of_its_row(tmp_path: Path) -> None:
    arm = {"cpu": "m8g.4xlarge (Graviton4, Neoverse V2)", "cores": "16", "threads": "16"}
    rows = read(tmp_path, [op("add", LARGE, 900.0), op("add", LARGE, 900.0, **arm), *on_apple("relu", MANY, 9.0, 9.0)])
    found = list(price_ops(rows))
    assert [p.group for p in found] == ["x86, 24 cores", "Arm, 16 cores", "Apple CPUs", "MPS"]
    assert all(0.0 < p.low < p.predicted < p.high for p in found)
    assert [p.family for p in found] == ["elementwise"] * 4
    assert profile_of(rows[0]).fit("cpu", 24).threads == 24
    assert profile_of(rows[1]).fit("cpu", 16).threads == 16
    assert profile_of(rows[3]).fits[0].gpu == "Apple M4 Max"


def test_the_sources_harness_stands_for_the_python_of_a_step(tmp_path: Path) -> None:
    """What a step's own loop takes is replaced by what the source's rows that do nothing take."""
    (row,) = read(tmp_path, [op("add", SMALL, 2.4)])
    trace = trace_call(row)
    fit = profile_of(row).fits[0]
    own = framework_seconds({"step": 1.0, "python_call": trace.python_calls}, fit.framework)
    assert harness_seconds(row, trace, fit) == pytest.approx(HARNESS["pytorch operator_benchmark: x86"] - own)
    elsewhere = replace(row, source="mlx-benchmark")
    assert harness_seconds(elsewhere, trace, fit) == 0.0
    assert price_op(elsewhere, trace).predicted - price_op(row, trace).predicted == pytest.approx(
        -harness_seconds(row, trace, fit)
    )


def test_an_op_on_mps_ends_with_a_wait(tmp_path: Path) -> None:
    _, row = read(tmp_path, on_apple("relu", ONE, 10.0, 150.0))
    trace = trace_call(row)
    waited, twice = (price_op(row, replace(trace, syncs=n)).predicted for n in (0, 1))
    assert twice - waited == pytest.approx(profile_of(row).fits[0].rates["sync_seconds"])


def test_which_device_is_faster_counts_where_the_source_is_clear(tmp_path: Path) -> None:
    large, near, bound, other = {"in": [[4096, 4096]]}, {"in": [[64, 64]]}, {"in": [[10]]}, {"in": [[20]]}
    rows = [
        *on_apple("exp", large, 9000.0, 900.0), *on_apple("sin", near, 100.0, 150.0),
        *on_apple("cos", bound, None, 150.0), *on_apple("tan", other, None, 2.0),
    ]  # fmt: skip
    priced = list(price_ops(read(tmp_path, rows)))
    found = {pair.cpu.op: pair for pair in pairs(priced)}
    assert {name for name, pair in found.items() if pair.is_clear} == {"exp", "cos"}
    assert all(pair.is_right for pair in found.values() if pair.is_clear)
    (line,) = ratio_lines(priced)
    assert line.startswith("mps / CPU, 2x apart and more: 2 of 2 (100.0%) on the right side")


def test_a_pair_is_of_one_table(tmp_path: Path) -> None:
    cpu, mps = on_apple("exp", MANY, 9000.0, 900.0)
    priced = list(price_ops(read(tmp_path, [cpu, {**mps, "date": "2025-01-01"}])))
    assert not list(pairs(priced))


def test_what_cannot_be_priced_is_said(tmp_path: Path) -> None:
    unknown = {**on_apple("relu", MANY, 9.0, 9.0)[1], "gpu": "Apple M99 GPU (MPS)"}
    said: list[str] = []
    rows = read(tmp_path, [op("frobnicate", SMALL, 1.0), unknown, op("add", SMALL, 2.4)])
    assert [p.op for p in price_ops(rows, said.append)] == ["add"]
    assert any(line.startswith("1 ops left out: frobnicate cannot be mapped") for line in said)
    assert any(line.startswith("1 ops left out: no GPU is called 'Apple M99'") for line in said)


def test_steps_are_priced_with_the_threads_of_their_row(tmp_path: Path) -> None:
    network = "torchbench:phlippe_densenet"
    rows = [step(network, 40.0, batch="64"), step(network, 400.0, batch="64", threads="1")]
    many, one = price_machine_steps(read_machine_steps(write(tmp_path, steps=rows)))
    assert (many.group, one.group) == ("Xeon 8375C, 32 threads", "Xeon 8375C, 1 thread")
    assert many.predicted < one.predicted
    assert all(p.low < p.predicted < p.high for p in (many, one))
    only = price_machine_steps(read_machine_steps(tmp_path), 1)
    assert [p.threads for p in only] == [32]


def test_a_network_that_the_package_does_not_have_is_left_out_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tiny(weights: None) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 2))

    def broken(weights: None) -> nn.Module:
        raise TypeError("another release")

    networks = SimpleNamespace(tiny=tiny, broken=broken)
    monkeypatch.setitem(sys.modules, "torchvision.models", networks)  # type: ignore[arg-type]  # as import finds it
    names = ("resnet18 with two heads", "tiny", "broken")
    rows = [step(f"torchvision:{name}", 40.0, batch="2") for name in names]
    said: list[str] = []
    priced = list(price_machine_steps(read_machine_steps(write(tmp_path, steps=rows)), say=said.append))
    assert [p.network for p in priced] == ["torchvision:tiny"]
    assert sorted(said) == [
        f"1 steps left out: {name} cannot be built by the torchvision that is installed"
        for name in ("broken", "resnet18 with two heads")
    ]


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [op("add", LARGE, 900.0), *on_apple("relu", MANY, 9000.0, 900.0), *on_apple("exp", ONE, None, 150.0)]
    folder = write(tmp_path, rows, [step("torchbench:phlippe_densenet", 40.0)])
    said: list[str] = []
    output = tmp_path / "out" / "rows.jsonl"
    assert validate_machines(folder, output=output, say=said.append) == 0
    shown = capsys.readouterr().out
    assert "4 published times of single ops" in shown  # the row without a figure is only in pairs
    for heading in ("| Machines |", "| MPS |", "| Machine |", "| Steps |", "| Network |"):
        assert heading in shown
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(written) == 6
    assert [row["held"] for row in written] == [is_held(row.get("name") or row["network"]) for row in written]
    assert written[0]["predicted"] > 0.0


def test_every_fourth_name_is_held_out() -> None:
    names = [f"add_M{n}_cpu" for n in range(4000)]
    assert 0.22 < sum(map(is_held, names)) / len(names) < 0.28


def test_a_folder_without_the_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlacerError, match="no published measurements in"):
        validate_machines(tmp_path / "nowhere")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")
def test_published_ops_have_prices() -> None:
    """All of one case a machine: bounds are those of docs/dev/accuracy-details.md, with room."""
    rows, _ = read_machine_ops(PUBLISHED)
    priced: list[PricedOp] = list(price_ops([row for row in rows if not row.is_bound][::7]))
    assert {p.group for p in priced} == {"x86, 24 cores", "Arm, 16 cores", "other x86", "Apple CPUs", "MPS", "CUDA"}
    assert all(0.0 < p.low < p.predicted < p.high < 1e3 for p in priced)
    clear = [pair for pair in pairs(price_ops([row for row in rows if "MatMul" in row.name])) if pair.is_clear]
    assert sum(pair.is_right for pair in clear) > 0.7 * len(clear)
