"""Published times of ops as rows, and as what their sources call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, write

from placer.calibration.lab.published.machine_calls import trace_call
from placer.calibration.lab.published.machines import MachineOp, read_machine_ops
from placer.errors import PlacerError, TraceError
from placer.tracing import OpCall

PAIR = {"in": [[64, 64], [64, 64]]}


def read(folder: Path, *rows: dict[str, Any]) -> list[MachineOp]:
    found, left_out = read_machine_ops(write(folder, rows))
    assert not left_out
    return found


def calls(folder: Path, *given: Any, **changes: Any) -> tuple[OpCall, ...]:
    (row,) = read(folder, op(*given, **changes))
    return trace_call(row).calls


def test_a_row_says_what_was_timed_and_where(tmp_path: Path) -> None:
    own, cpu, mps = read(tmp_path, op("add", PAIR, 14.5), *on_apple("Add / 64", PAIR, None, 150.0))
    assert (own.name, own.device, own.machine, own.threads, own.seconds) == (
        "add_cpu",
        "cpu",
        "c5.12xlarge (Xeon Platinum, Cascade Lake)",
        24,
        pytest.approx(14.5e-6),
    )
    assert (mps.device, mps.machine, mps.host, mps.cores) == ("mps", "Apple M4 Max", "Apple M4 Max", 40)
    assert (cpu.host, cpu.name, cpu.date) == (mps.host, mps.name, mps.date)
    assert (cpu.is_bound, mps.is_bound) == (True, False)
    assert cpu.seconds == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ("ARTEFACT: 100 to 500 times too long; do not use", "artefact"),
        ("WRONG DEVICE: tensors were on the CPU", "on the wrong device"),
        ("mean of 5; the process had about one core: Linear at 44", "about one core"),
        ("host loaded or oversubscribed: convolutions of 500 ms", "host loaded"),
        ("ERROR in the source", "error in the source"),
        ("the machine was disturbed", "machine disturbed"),
        ("in place over and over: values run to a limit", "in place over and over"),
        ("no-op: returns self; the harness alone", "does nothing"),
        ("a view; no data moved", "a view"),
        ("pathological: 0.48 s", "pathological"),
        ("quantisation: config parameters only", "quantised"),
    ],
)
def test_rows_that_are_not_to_be_used_are_counted_by_reason(tmp_path: Path, notes: str, reason: str) -> None:
    kept = op("linear", PAIR, 20.0, "weight is a transposed view; printed to 0.01 ms")
    rows, left_out = read_machine_ops(write(tmp_path, [op("add", PAIR, 9.0, notes), kept]))
    assert [row.op for row in rows] == ["linear"]
    assert left_out == {reason: 1}


def test_what_cannot_be_mapped_says_so(tmp_path: Path) -> None:
    bags = {"in": [[8], [2]], "w": [10, 64], "mode": "sum", "sparse": True, "include_last_offset": False}
    for given, why in (
        (op("embedding_bag", bags, 100.0, phase="bwd"), "sparse"),
        (op("frobnicate", PAIR, 1.0), "frob"),
    ):
        (row,) = read(tmp_path, given)
        with pytest.raises(TraceError, match=why):
            trace_call(row)


def test_a_folder_without_them_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlacerError, match=r"ops\.csv\.gz: No such file or directory; give the folder"):
        read_machine_ops(tmp_path)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published measurements are not in {PUBLISHED}")
def test_nearly_every_published_row_can_be_mapped() -> None:
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
