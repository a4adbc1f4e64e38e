"""Published times of ops as rows, and as what their sources call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_rows import PUBLISHED, on_apple, op, write

from placer.calibration.published.machine_calls import trace_call
from placer.calibration.published.machines import MachineOp, read_machine_ops
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
        "add_cpu", "cpu", "c5.12xlarge (Xeon Platinum, Cascade Lake)", 24, pytest.approx(14.5e-6),
    )  # fmt: skip
    assert (mps.device, mps.machine, mps.host, mps.cores) == ("mps", "Apple M4 Max", "Apple M4 Max", 40)
    assert (cpu.host, cpu.name, cpu.date) == (mps.host, mps.name, mps.date)
    assert (cpu.is_bound, mps.is_bound) == (True, False)
    assert cpu.seconds == pytest.approx(5e-6)


@pytest.mark.parametrize(("notes", "reason"), [
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
])  # fmt: skip
def test_rows_that_are_not_to_be_used_are_counted_by_reason(tmp_path: Path, notes: str, reason: str) -> None:
    kept = op("linear", PAIR, 20.0, "weight is a transposed view; printed to 0.01 ms")
    rows, left_out = read_machine_ops(write(tmp_path, [op("add", PAIR, 9.0, notes), kept]))
    assert [row.op for row in rows] == ["linear"]
    assert left_out == {reason: 1}


def test_rows_of_one_call_share_it(tmp_path: Path) -> None:
    convolution = {"in": [[2, 3, 8, 8]], "w": [4, 3, 3, 3], "bias": False, "stride": 1, "pad": 0}
    permuted = "input and weight are permuted views (channels last in memory)"
    one, other, third = read(
        tmp_path, op("conv2d", convolution, 9.0), op("conv2d", convolution, 8.0, permuted),
        op("conv2d", convolution, 7.0),
    )  # fmt: skip
    assert one.call == third.call != other.call
    plain, last = (trace_call(row).calls[0].inputs for row in (one, other))
    assert [spec.contiguous for spec in plain[:2]] == [True, True]
    assert last[0].shape == plain[0].shape
    assert last[0].stride == (192, 1, 24, 3)
    assert last[1].stride == (27, 1, 9, 3)


def test_layouts_of_the_sources(tmp_path: Path) -> None:
    (product,) = calls(tmp_path, "matmul", {**PAIR, "a_contiguous": True, "b_contiguous": False}, 16.0)
    assert [spec.contiguous for spec in product.inputs] == [True, False]
    (total,) = calls(tmp_path, "sum", {"in": [[64, 32]], "dim": 0, "contiguous": False}, 8.0)
    assert total.inputs[0].stride == (128, 2)
    linear = {"in": [[16, 8]], "w": [4, 8], "bias": True}
    weights = [
        next(call for call in calls(tmp_path, "linear", linear, 8.0, notes) if call.op == "aten::addmm").inputs[2]
        for notes in ("", "weight is a transposed view")
    ]
    assert [weight.shape for weight in weights] == [(8, 4), (8, 4)]
    assert [weight.stride for weight in weights] == [(1, 8), (4, 1)]


@pytest.mark.parametrize(("name", "shapes", "dtype", "expected"), [
    ("abs_", {"in": [[8, 8]], "inplace": True}, "float32", "aten::abs_"),
    ("add", {**PAIR, "dtypes": ["int32", "uint8"]}, "int32,uint8", "aten::add"),
    ("baddbmm", {"in": [[2, 1, 8], [2, 1, 2], [2, 2, 8]]}, "bfloat16", "aten::baddbmm"),
    ("cat", {"in": [[2, 3], [2, 3]], "dim": 1}, "float32", "aten::cat"),
    ("to", {"in": [[32, 128]], "to": "uint8"}, "bool", "aten::_to_copy"),
    ("where", {"in": [[8, 16, 1], [1], [1]]}, "float32", "aten::where"),
    ("index_add_", {"in": [[8, 32, 1], [3, 32, 1]], "index": [3], "dim": 0}, "float32", "aten::index_add_"),
    ("scatter_reduce", {"in": [[64, 16], [10, 16]], "index": [10, 1], "dim": 0, "reduce": "sum"}, "float32",
     "aten::scatter_reduce"),
    ("group_norm", {"in": [[4, 8, 16]], "w": [8], "groups": 2}, "float32", "aten::native_group_norm"),
    ("max_pool2d", {"in": [[1, 16, 32, 32]], "kernel": [3, 1], "stride": [2, 1]}, "float32",
     "aten::max_pool2d_with_indices"),
    ("conv_transpose1d", {"in": [[4, 256, 64]], "w": [256, 256, 3], "bias": True, "stride": 2, "pad": 0, "groups": 1},
     "float32", "aten::convolution"),
    ("interpolate", {"in": [[1, 3, 60, 40]], "size": [24, 24], "channels_last": True, "mode": "bilinear"}, "float32",
     "aten::upsample_bilinear2d"),
])  # fmt: skip
def test_an_op_is_called_as_its_source_does(
    tmp_path: Path, name: str, shapes: dict[str, Any], dtype: str, expected: str
) -> None:
    assert expected in [call.op for call in calls(tmp_path, name, shapes, 10.0, dtype=dtype)]


def test_a_backward_row_is_the_backward_pass_and_what_it_adds_to(tmp_path: Path) -> None:
    found = calls(tmp_path, "addmm", {"in": [[64, 64]] * 3}, 146.0, phase="bwd")
    names = [call.op for call in found]
    assert names.count("aten::mm") == 2
    assert names.count("aten::add_") == 3
    assert "aten::addmm" not in names
    embedding = calls(tmp_path, "embedding", {"in": [[64]], "w": [120, 64]}, 90.0, phase="bwd")
    assert [call.op for call in embedding][-2:] == ["aten::embedding_dense_backward", "aten::add_"]


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
