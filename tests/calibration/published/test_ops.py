"""Published operators: the op calls behind every row, and the rows that are left out."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.published.ops import _ELEMENTWISE, _MAKERS, GPUS, LEFT_OUT, PublishedOp, read_ops
from placer.errors import PlacerError
from placer.pricing import Context, describe
from placer.pricing.work import Work
from placer.profile import find_gpu

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "gpu-data"
shared = pytest.mark.skipif(not (FOLDER / "ops.csv.gz").is_file(), reason="no published measurements in ../shared")

ROW = {
    "source": "kineto-samples", "gpu": "Tesla T4", "torch_version": "2.1.0", "op": "mm", "phase": "fwd",
    "dtype": "float32", "shapes": '{"in":[[8,4],[4,2]]}', "microseconds": "12.5", "statistic": "median",
    "what": "kernel", "notes": "",
}  # fmt: skip
Read = Callable[..., tuple[list[PublishedOp], Counter[str]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What is read of rows, each given by what it has other than ``ROW``."""

    def call(*changes: dict[str, Any]) -> tuple[list[PublishedOp], Counter[str]]:
        with gzip.open(tmp_path / "ops.csv.gz", "wt", newline="") as file:
            writer = csv.DictWriter(file, ROW)
            writer.writeheader()
            for each in changes:
                shapes = {"shapes": json.dumps(each["shapes"])} if "shapes" in each else {}
                writer.writerow({**ROW, **each, **shapes})
        return read_ops(tmp_path)

    return call


def works(op: PublishedOp) -> list[Work]:
    return [describe(call, Context(0, False)) for call in op.calls]


IMAGE, WEIGHT = [2, 3, 8, 8], [5, 3, 3, 3]
CONV = {"in": [IMAGE], "w": WEIGHT, "stride": [1, 1], "pad": [1, 1], "groups": 1, "bias": False}
LSTM = {"T": 5, "N": 2, "I": 6, "H": 4, "layers": 1, "dirs": 1, "input_mode": "linear"}
#: Op, phase and shapes as the data has them; then name, FLOPs and bytes of each op call, counted by hand.
MADE: list[tuple[str, str, dict[str, Any], list[tuple[str, float, float]]]] = [
    ("linear", "fwd", {"in": [[2, 4, 8]], "w": [16, 8], "bias": False}, [("mm", 2 * 8 * 8 * 16, 4 * (64 + 128 + 128))]),
    ("linear", "fwd", {"in": [[8, 8]], "w": [16, 8], "bias": True},
     [("addmm", 2 * 8 * 8 * 16, 4 * (64 + 128 + 128 + 16))]),
    ("linear", "bwd", {"in": [[8, 8]], "w": [16, 8], "bias": True},
     [("mm", 2048, 4 * 320), ("mm", 2048, 4 * 320), ("sum", 128, 4 * (128 + 16))]),
    ("addmm", "fwd", {"in": [[16], [8, 4], [4, 16]]}, [("addmm", 2 * 8 * 4 * 16, 4 * (16 + 32 + 64 + 128))]),
    ("addmm", "bwd", {"in": [[16], [8, 4], [4, 16]]},
     [("mm", 1024, 4 * (128 + 64 + 32)), ("mm", 1024, 4 * (128 + 64 + 32)), ("sum", 128, 4 * 144)]),
    ("mm", "fwd", {"in": [[8, 4], [4, 2]], "ta": True}, [("mm", 2 * 8 * 4 * 2, 4 * (32 + 8 + 16))]),
    ("bmm", "fwd", {"in": [[3, 8, 4], [3, 4, 2]]}, [("bmm", 3 * 128, 3 * 4 * 56)]),
    ("bmm", "bwd", {"in": [[3, 8, 4], [3, 4, 2]]}, [("bmm", 3 * 128, 3 * 4 * 56), ("bmm", 3 * 128, 3 * 4 * 56)]),
    ("matmul", "fwd", {"in": [[1, 3, 8, 4], [1, 3, 4, 2]]}, [("bmm", 3 * 128, 3 * 4 * 56)]),
    ("matmul", "fwd", {"in": [[3, 8, 4], [4, 2]]}, [("mm", 3 * 128, 4 * (96 + 8 + 48))]),
    ("softmax", "fwd", {"in": [[4, 8]], "dim": -1}, [("_softmax", 12 * 32, 8 * 32)]),
    ("softmax", "bwd", {"in": [[4, 8]], "dim": -1}, [("_softmax_backward_data", 12 * 32, 12 * 32)]),
    ("cross_entropy", "fwd", {"in": [[4, 8], [4]]}, [("_log_softmax", 12 * 32, 8 * 32)]),
    ("layer_norm", "fwd", {"in": [[4, 8]], "norm": [8]}, [("native_layer_norm", 256, 4 * (32 + 16 + 32 + 8))]),
    ("layer_norm", "bwd", {"in": [[4, 8]], "norm": [8]},
     [("native_layer_norm_backward", 256, 4 * (64 + 8 + 16 + 32 + 16))]),
    ("batch_norm", "fwd", {"in": [IMAGE], "train": True}, [("native_batch_norm", 8 * 384, 4 * (768 + 18))]),
    ("batch_norm", "bwd", {"in": [IMAGE], "train": True},
     [("native_batch_norm_backward", 8 * 384, 4 * (3 * 384 + 15 + 6))]),
    ("conv2d", "fwd", CONV, [("convolution", 2 * 2 * 3 * 5 * 9 * 64, 4 * (384 + 135 + 640))]),
    ("conv2d", "bwd", CONV, [("convolution_backward", 4 * 2 * 3 * 5 * 9 * 64, 4 * (640 + 384 + 135 + 384 + 135))]),
    ("max_pool2d", "fwd", {"in": [IMAGE], "k": [2, 2], "stride": [2, 2], "pad": [0, 0]},
     [("max_pool2d_with_indices", 384, 4 * (384 + 96) + 8 * 96)]),
    ("max_pool2d", "bwd", {"in": [IMAGE], "k": [2, 2], "stride": [2, 2], "pad": [0, 0]},
     [("max_pool2d_with_indices_backward", 384, 4 * (96 + 384 + 384) + 8 * 96)]),
    ("adaptive_avg_pool2d", "fwd", {"in": [IMAGE], "out": [1, 1]}, [("_adaptive_avg_pool2d", 384, 4 * (384 + 6))]),
    ("adaptive_avg_pool2d", "bwd", {"in": [IMAGE], "out": [1, 1]},
     [("_adaptive_avg_pool2d_backward", 384, 4 * (384 + 6 + 384))]),
    ("embedding", "fwd", {"idx": [2, 5], "w": [100, 16]}, [("embedding", 0, 4 * 2 * 160 + 8 * 10)]),
    ("embedding", "bwd", {"idx": [2, 5], "w": [100, 16]},
     [("embedding_dense_backward", 0, 4 * 3 * 160 + 8 * 10 + 8 * 1600)]),
    ("scaled_dot_product_attention", "fwd", {"q": [2, 3, 8, 4], "kv": [2, 3, 8, 4], "causal": True},
     [("scaled_dot_product_attention", 2 * 6 * 8 * 8 * 8, 4 * 4 * 192)]),
    ("copy", "fwd", {"in": [[2, 3, 4, 5]], "noncontig": True}, [("clone", 120, 8 * 120)]),
    ("lstm", "fwd", LSTM, [("lstm", 2 * 10 * 16 * 10, 4 * (60 + 160 + 40))]),
    ("lstm", "bwd", LSTM, [("lstm_backward", 4 * 10 * 16 * 10, 4 * (60 + 160 + 40))]),
    ("gru", "fwd", LSTM, [("gru", 2 * 10 * 12 * 10, 4 * (60 + 120 + 40))]),
    ("rnn_relu", "fwd", LSTM, [("rnn_relu", 2 * 10 * 4 * 10, 4 * (60 + 40 + 40))]),
    ("lstm", "fwd", {**LSTM, "input_mode": "skip"}, [("lstm", 2 * 10 * 16 * 4, 4 * (60 + 64 + 40))]),
    ("add", "fwd", {"in": [[4, 8], [4, 8]]}, [("add", 32, 12 * 32)]),
    ("add", "fwd", {"in": [[4, 1, 8], [3, 8]]}, [("add", 96, 4 * (32 + 24 + 96))]),
    ("sub", "fwd", {"in": [[4, 8]], "scalar": True}, [("sub.number", 32, 8 * 32)]),
    ("mul", "fwd", {"in": [[4, 8], [4, 8]]}, [("mul", 32, 12 * 32)]),
    ("mul", "bwd", {"in": [[4, 8], [4, 8]]}, [("mul", 32, 12 * 32), ("mul", 32, 12 * 32)]),
    ("div", "bwd", {"in": [[4, 8]], "scalar": True}, [("div.number", 32, 8 * 32)]),
    ("div", "fwd", {"in": [[4, 8], [4, 8]]}, [("div", 32, 12 * 32)]),
    ("pow", "fwd", {"in": [[4, 8]]}, [("pow", 20 * 32, 8 * 32)]),
    ("maximum", "fwd", {"in": [[4, 8]]}, [("maximum", 32, 8 * 32 + 4)]),
    ("where", "fwd", {"in": [[1, 8], [4, 8]]}, [("where", 32, 8 + 4 * (8 + 32 + 32))]),
    ("relu", "fwd", {"in": [[4, 8]]}, [("relu", 32, 8 * 32)]),
    ("relu", "bwd", {"in": [[4, 8]]}, [("threshold_backward", 32, 12 * 32)]),
    ("gelu", "fwd", {"in": [[4, 8]]}, [("gelu", 25 * 32, 8 * 32)]),
    ("gelu", "bwd", {"in": [[4, 8]]}, [("gelu_backward", 35 * 32, 12 * 32)]),
    ("tanh", "fwd", {"in": [[4, 8]]}, [("tanh", 20 * 32, 8 * 32)]),
    ("masked_fill", "fwd", {"in": [[4, 8], [4, 8]]}, [("masked_fill", 32, 32 + 12 * 32)]),
    ("dropout", "fwd", {"in": [[4, 8]], "train": True}, [("dropout", 32, 8 * 32 + 32)]),
    ("dropout", "bwd", {"in": [[4, 8]], "train": True}, [("dropout_backward", 32, 12 * 32)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "phase", "shapes", "calls"), MADE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_calls_behind_a_row(
    read: Read, op: str, phase: str, shapes: dict[str, Any], calls: list[tuple[str, float, float]]
) -> None:
    (found,), left_out = read({"op": op, "phase": phase, "shapes": shapes})
    assert not left_out
    made = works(found)
    assert [work.op for work in made] == [f"aten::{name}" for name, _, _ in calls]
    assert [work.flops for work in made] == pytest.approx([flops for _, flops, _ in calls])
    assert [work.bytes for work in made] == pytest.approx([moved for _, _, moved in calls])


def test_every_op_of_the_reader_is_tried_here() -> None:
    assert {op for op, *_ in MADE} == {*_MAKERS, *_ELEMENTWISE}


def test_half_precision_moves_half_the_bytes(read: Read) -> None:
    (whole, half), _ = read({}, {"dtype": "float16"})
    assert (works(half)[0].dtype, works(half)[0].bytes) == ("float16", works(whole)[0].bytes / 2)


def test_a_transposed_operand_and_a_strided_copy_are_seen(read: Read) -> None:
    (linear, copy, plain), _ = read(
        {"op": "linear", "shapes": {"in": [[8, 4]], "w": [16, 4], "bias": False}},
        {"op": "copy", "shapes": {"in": [[2, 3, 4, 5]], "noncontig": True}},
        {"op": "copy", "shapes": {"in": [[2, 3, 4, 5]]}},
    )
    assert works(linear)[0].flags[:2] == (0.0, 1.0)
    assert not copy.calls[0].inputs[0].contiguous
    assert plain.calls[0].inputs[0].contiguous


def test_what_a_row_says_besides(read: Read) -> None:
    (found, half), _ = read(
        {"what": "op", "gpu": "NVIDIA GeForce GTX TITAN X (Maxwell)"},
        {"op": "conv2d", "phase": "bwd", "shapes": {**CONV, "grad": "weight"}},
    )
    assert (found.source, found.op, found.phase) == ("kineto-samples", "mm", "fwd")
    assert (found.gpu, found.includes_host, found.part) == ("NVIDIA GeForce GTX TITAN X", True, "")
    assert found.seconds == pytest.approx(12.5e-6)
    assert (half.includes_host, half.part) == (False, "weight")


@pytest.mark.parametrize(("changes", "reason"), [
    ({"source": "liger-kernel"}, LEFT_OUT["liger-kernel"]),
    ({"op": "noop"}, "no kernel, or none of PyTorch's own: noop fwd"),
    ({"op": "add", "phase": "bwd"}, "no kernel, or none of PyTorch's own: add bwd"),
    ({"phase": "fwd+bwd"}, "no kernel, or none of PyTorch's own: mm fwd+bwd"),
    ({"op": "cumsum", "dtype": "int64"}, "not floating point: int64"),
    ({"source": "neusight-train", "gpu": "Tesla P4", "op": "linear"},
     "throttled: linear on Tesla P4 (the collection's own flag)"),
    ({"op": "embedding", "notes": "vocabulary mask inside"},
     "embedding with the mask kernels of tensor parallelism inside"),
    ({"source": "vidur", "notes": "two adds"}, "two ops timed together"),
    ({"op": "conv2d", "shapes": {**CONV, "pad": [0, 0], "w": [5, 3, 9, 9]}},
     "no kernel, or none of PyTorch's own: conv2d fwd"),
])  # fmt: skip
def test_rows_that_are_left_out(read: Read, changes: dict[str, Any], reason: str) -> None:
    found, left_out = read({"shapes": {"in": [[4, 8], [4, 8]]}, **changes})
    assert (found, left_out) == ([], Counter([reason]))


def test_a_share_of_a_very_large_source_is_taken_and_the_same_one_again(read: Read) -> None:
    many = [{"source": "aiconfigurator", "op": "linear", "microseconds": f"{i + 1}",
             "shapes": {"in": [[8, 8]], "w": [16, 8], "bias": False}} for i in range(400)]  # fmt: skip
    found, left_out = read(*many)
    assert 30 < len(found) < 90
    assert left_out == Counter({"thinned: a share of a very large source is enough": 400 - len(found)})
    assert [op.seconds for op in read(*many)[0]] == [op.seconds for op in found]


def test_gpus_whose_variant_is_not_said_are_in_the_catalog() -> None:
    for name in GPUS.values():
        assert find_gpu(name).name == name


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(PlacerError, match="give the folder that holds ops"):
        read_ops(tmp_path)


@shared
def test_a_sample_of_the_collection(tmp_path: Path) -> None:
    """Every 97th row: all are described, or counted with a reason."""
    with gzip.open(FOLDER / "ops.csv.gz", "rt", newline="") as file:
        lines = itertools.chain([next(file)], itertools.islice(file, 0, None, 97))
        with gzip.open(tmp_path / "ops.csv.gz", "wt", newline="") as sample:
            sample.writelines(lines)
    found, left_out = read_ops(tmp_path)
    with gzip.open(tmp_path / "ops.csv.gz", "rt", newline="") as file:
        assert len(found) + left_out.total() == sum(1 for _ in csv.DictReader(file))
    assert len(found) > 1000
    assert len({op.source for op in found}) > 5
    assert not {op.source for op in found} & set(LEFT_OUT)
    for op in found:
        assert op.seconds > 0.0
        find_gpu(op.gpu)
        for work in works(op):
            assert work.bytes > 0.0, op
            assert work.flops >= 0.0, op
