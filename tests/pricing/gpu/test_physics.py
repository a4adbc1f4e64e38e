"""Rows of kernels, and the time that physics allows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from described import spec, work
from torch import Tensor, nn

from placer.pricing import describe_step
from placer.pricing.gpu.device_model import DeviceModel
from placer.pricing.gpu.physics import (
    COLUMNS,
    L2_BYTES_PER_CLOCK,
    L2_SHARE,
    Row,
    inputs,
    kernel_seconds,
    label_of,
    rate,
    rows_of,
)
from placer.pricing.work import Work
from placer.profile import DataSheet, find_gpu, gpus
from placer.tracing import trace
from placer.workload import make_workload


class Small(nn.Module):
    """A convolution of every kind, and what stands around them."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.transposed = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.dropout, self.linear = nn.Dropout(0.5), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transposed(self.norm(self.depthwise(self.plain(x))))
        out: Tensor = self.linear(self.dropout(x.mean((2, 3))))
        return out


def works(model: nn.Module, *shape: int) -> list[Work]:
    return describe_step(trace(make_workload(model, shape, optimizer="adam")))


@pytest.fixture(scope="module")
def small() -> list[Work]:
    return works(Small(), 4, 3, 10, 10)


@pytest.fixture(scope="module")
def every(small: list[Work]) -> list[Work]:
    encoder = works(nn.TransformerEncoderLayer(16, 2, dim_feedforward=32), 7, 3, 16)
    return [*small, *encoder, *works(nn.LSTM(6, 5), 7, 3, 6)]


def named(row: Row) -> dict[str, float]:
    return dict(zip(COLUMNS[row.kind], row.columns, strict=True))


def rows(found: Sequence[Work], op: str) -> list[list[dict[str, float]]]:
    """The rows of each call of ``op``, by the names of their columns."""
    return [[named(row) for row in rows_of(each)] for each in found if each.op.partition(".")[0] == f"aten::{op}"]


def test_rows_have_the_columns_of_their_kind_and_add_up_to_the_op(every: list[Work]) -> None:
    seen = set()
    for each in every:
        found = rows_of(each)
        assert bool(found) == (each.family != "view")
        for row in found:
            seen.add(row.kind)
            assert len(row.columns) == len(COLUMNS[row.kind])
            assert (row.dtype, min(row.columns) >= 0.0) == ("float32", True)
        if found:
            assert sum(row.columns[0] for row in found) == pytest.approx(each.flops), each.op
    assert seen == set(COLUMNS)


def test_a_forward_convolution_is_one_product(small: list[Work]) -> None:
    (plain,), (depthwise,), (transposed,) = rows(small, "convolution")
    assert (plain["m"], plain["n"], plain["k"], plain["batch"]) == (400, 8, 27, 1)
    assert (plain["kernel"], plain["stride"], plain["image"], plain["to_input"], plain["to_weight"]) == (9, 1, 4, 0, 0)
    assert plain["bytes"] == 4 * (4 * 100 * (3 + 8) + 8 * 27)
    assert depthwise["bytes"] == 4 * (4 * 8 * (100 + 64) + 8 * 9)
    assert (depthwise["batch"], depthwise["m"], depthwise["n"], depthwise["k"]) == (8, 256, 1, 9)
    assert (transposed["in_channels"], transposed["out_channels"], transposed["stride"]) == (4, 8, 4)
    assert (transposed["m"], transposed["n"], transposed["k"], transposed["to_input"]) == (1024, 4, 32, 1)


def test_kinds_of_convolutions(small: list[Work]) -> None:
    kinds = [rows_of(each)[0].kind for each in small if each.family.startswith("convolution")]
    assert kinds == ["convolution", "depthwise", "convolution", "convolution", "depthwise", "convolution"]


def test_groups_of_two_channels_are_no_depthwise_convolution() -> None:
    image, weight = spec(2, 8, 9, 9), spec(8, 2, 1, 1)
    (row,) = rows_of(work("aten::convolution", [image, weight], [image], (1, 1), (0, 0), (1, 1), False, (0, 0), 4))
    assert (row.kind, named(row)["batch"], named(row)["in_channels"]) == ("convolution", 4, 2)


def test_a_gradient_is_a_row_for_the_weight_and_one_for_the_image(small: list[Work]) -> None:
    transposed, depthwise, first = rows(small, "convolution_backward")
    assert [row["to_weight"] for row in depthwise] == [1, 0]
    assert [row["to_input"] for row in depthwise] == [0, 1]
    assert [row["flops"] for row in depthwise] == [2 * 4 * 8 * 9 * 64] * 2
    assert (depthwise[0]["m"], depthwise[0]["n"], depthwise[0]["k"]) == (1, 9, 256)
    assert (depthwise[1]["m"], depthwise[1]["n"], depthwise[1]["k"]) == (400, 1, 9)
    # Nobody asks for the gradient of the batch.
    assert [(row["to_weight"], row["m"], row["n"], row["k"]) for row in first] == [(1, 8, 27, 400)]
    # The image's gradient of a transposed convolution is a plain one.
    assert [(row["to_weight"], row["to_input"]) for row in transposed] == [(1, 0), (0, 0)]
    assert (transposed[1]["m"], transposed[1]["n"], transposed[1]["k"]) == (256, 8, 16)


def test_dimensions_gaps_and_layout_of_a_convolution() -> None:
    image, weight, out = spec(2, 4, 9), spec(6, 4, 3), spec(2, 6, 5)
    found = work("aten::convolution", [image, weight], [out], (1,), (0,), (2,), False, (0,), 1)
    one_d = named(rows_of(found)[0])
    assert (one_d["one_d"], one_d["dilated"], one_d["three_d"], one_d["channels_last"]) == (1, 1, 0, 0)
    last = spec(2, 4, 8, 8, stride=(256, 1, 32, 4), dtype="float16")
    half = (spec(6, 4, 1, 1, dtype="float16"), spec(2, 6, 8, 8, dtype="float16"))
    found = work("aten::convolution", [last, half[0]], [half[1]], (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    (row,) = rows_of(found)
    assert (row.dtype, named(row)["channels_last"]) == ("float16", 1)
    assert named(row)["bytes"] == 2 * (2 * 64 * (4 + 6) + 24)


def test_products(small: list[Work]) -> None:
    assert [(row["batch"], row["m"], row["n"], row["k"]) for row, in rows(small, "addmm")] == [(1, 4, 5, 4)]
    # The gradients of the operand and of the weight.
    to_input, to_weight = (row for row, in rows(small, "mm"))
    assert (to_input["m"], to_input["n"], to_input["k"]) == (4, 4, 5)
    assert (to_weight["m"], to_weight["n"], to_weight["k"], to_weight["a_transposed"]) == (5, 4, 4, 1)


def test_attention_and_its_gradient(every: list[Work]) -> None:
    ((forward,),) = rows(every, "scaled_dot_product_attention")
    names = "batch", "length", "source", "width", "dropout", "backward"
    assert [forward[name] for name in names] == [6, 7, 7, 8, 1, 0]
    ((backward,),) = rows(every, "scaled_dot_product_attention_backward")
    assert (backward["backward"], backward["flops"]) == (1, 2.5 * forward["flops"])


def test_recurrent_layers_and_their_gradient(every: list[Work]) -> None:
    ((forward,),) = rows(every, "lstm")
    assert [forward[name] for name in ("length", "batch", "input", "hidden", "stacked")] == [7, 3, 6, 5, 1]
    assert (forward["weights"], forward["backward"]) == (4 * 5 * (6 + 5), 0)
    ((backward,),) = rows(every, "lstm_backward")
    assert (backward["backward"], backward["flops"]) == (1, 2 * forward["flops"])


def test_ops_bound_by_memory(every: list[Work]) -> None:
    norm, dropout = rows(every, "native_batch_norm")[0][0], rows(every, "dropout")[0][0]
    assert (norm["numel"], norm["second"], norm["flag"]) == (4 * 8 * 64, 8, 1)
    assert (dropout["numel"], dropout["broadcast"]) == (16, 0)
    layer_norm = rows(every, "native_layer_norm")[0][0]
    assert (layer_norm["numel"], layer_norm["second"]) == (7 * 3 * 16, 16)
    (picked,) = (row for row, in rows(every, "select_backward")[:1])
    assert (picked["numel"], picked["second"], picked["inner"]) == (336, 1008, 336)


def test_updates(small: list[Work]) -> None:
    updates = [each for each in small if each.family == "optimizer"]
    assert {label_of(each) for each in updates} == {"optimizer:optimizer::Adam"}
    assert [named(rows_of(each)[0])["numel"] for each in updates][:2] == [216, 8]
    assert {named(rows_of(each)[0])["second"] for each in updates} == {10}


def test_labels_tell_ops_apart_and_kernels_not() -> None:
    x = spec(4, 4)
    added = work("aten::add", [x], [x])
    assert added.op == "aten::add.number"
    assert label_of(added) == "elementwise:add"
    assert label_of(work("aten::add_", [x, x], [x], in_place=True)) == "elementwise:add"
    assert rows_of(work("aten::convolution", [spec(1, 1, 4), spec(1, 1, 1)], [spec(1, 1, 4)]))[0].label == "convolution"


def test_what_is_converted_first_keeps_its_floating_point_dtype() -> None:
    found = work("aten::mul", [spec(4), spec(4, dtype="bool")], [spec(4)])
    assert [row.dtype for row in rows_of(found)] == ["float32"]

DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64")
#: FLOPs and bytes from next to nothing to a large op's.
AMOUNTS = ((0.0, 4.0), (1.0, 4.0), (1e6, 1e6), (1e10, 1e6), (1e6, 1e9), (1e13, 1e10))


def rows_physics(kind: str) -> np.ndarray:
    """Rows of all amounts: sizes of 0 (an empty batch), 1, 48 and 4096, flags set and not."""
    found = []
    for size, flag in ((0.0, 0.0), (1.0, 0.0), (48.0, 1.0), (4096.0, 0.0)):
        flags = {"channels_last", "to_input", "to_weight", "dilated", "one_d", "three_d", "causal", "masked", "dropout",
                 "backward", "strided", "broadcast", "flag", "a_transposed", "b_transposed"}  # fmt: skip
        rest = [flag if name in flags else size for name in COLUMNS[kind][2:]]
        found += [[flops, moved, *rest] for flops, moved in AMOUNTS]
    return np.array(found)


@pytest.mark.parametrize("kind", COLUMNS)
def test_inputs_are_finite_and_nothing_is_faster_than_the_data_sheet(kind: str) -> None:
    columns, widths = rows_physics(kind), set()
    flops, moved = columns[:, 0], columns[:, 1]
    for sheet in gpus().values():
        peaks = {
            "float32": max(sheet.float32_tflops, sheet.matrix_float32_tflops),
            "tf32": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_tf32_tflops),
            "float16": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_float16_tflops),
            "bfloat16": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_bfloat16_tflops),
            "float64": max(sheet.float64_tflops, sheet.float32_tflops / 64.0),
        }
        l2 = (sheet.l2_mb + sheet.last_level_cache_mb) * 1e6
        for dtype, peak in peaks.items():
            seconds, x = inputs(kind, columns, dtype, sheet)
            widths.add(x.shape[1])
            assert np.isfinite(x).all(), (sheet.name, dtype)
            assert np.isfinite(seconds).all(), (sheet.name, dtype)
            assert (seconds > 0.0).all(), (sheet.name, dtype)
            assert (seconds >= 0.999 * flops / (peak * 1e12)).all(), (sheet.name, dtype)
            beyond_l2 = moved > 20.0 * L2_SHARE * max(l2, 1e5)
            fastest = 1.01 * sheet.bandwidth_gbps * 1e9
            assert (seconds[beyond_l2] >= moved[beyond_l2] / fastest).all(), (sheet.name, dtype)
    assert len(widths) == 1


def test_what_fits_in_l2_is_read_from_there() -> None:
    sheet = find_gpu("A100")
    columns = np.zeros((2, len(COLUMNS["memory"])))
    columns[:, 1] = 1e6, 1e9
    columns[:, 2:5] = 1.0
    small, large = inputs("memory", columns, "float32", sheet)[0]
    from_l2 = sheet.sms * sheet.boost_mhz * 1e6 * L2_BYTES_PER_CLOCK
    assert small == pytest.approx(1e6 / from_l2, rel=0.05)
    assert large == pytest.approx(1e9 / (sheet.bandwidth_gbps * 1e9), rel=0.05)


def test_rates_of_a_t4_are_held_by_its_power_limit() -> None:
    t4 = find_gpu("T4")
    assert 0.35 < rate(t4, "float32", tensor=False) / (t4.float32_tflops * 1e12) < 0.5
    assert 0.4 < rate(t4, "float16", tensor=True) / (t4.tensor_float16_tflops * 1e12) < 0.65
    # Without a limit, the best kernels come near to the peak.
    assert rate(replace(t4, watts=1e6), "float16", tensor=True) == pytest.approx(0.97e12 * t4.tensor_float16_tflops)


def test_a_higher_limit_is_never_slower() -> None:
    for sheet in gpus().values():
        more = replace(sheet, watts=1.5 * sheet.watts)
        for dtype in DTYPES:
            tensor = dtype in ("tf32", "float16", "bfloat16")
            assert rate(more, dtype, tensor=tensor) >= rate(sheet, dtype, tensor=tensor) > 0.0


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
def test_tensor_cores(name: str) -> None:
    sheet = find_gpu(name)
    plain = rate(sheet, "float32", tensor=False)
    assert rate(sheet, "tf32", tensor=True) > 1.2 * plain
    assert rate(sheet, "bfloat16", tensor=True) > 1.2 * rate(sheet, "tf32", tensor=True)
    assert rate(sheet, "float16", tensor=True) == pytest.approx(rate(sheet, "bfloat16", tensor=True))


def test_of_geforce_cards_tensor_cores_multiply_float32_no_faster() -> None:
    for name in ("RTX 3090", "RTX 4090"):
        sheet = find_gpu(name)
        assert rate(sheet, "tf32", tensor=True) == rate(sheet, "float32", tensor=False)
        assert rate(sheet, "float16", tensor=True) > 2.0 * rate(sheet, "tf32", tensor=True)


def test_half_precision_without_tensor_cores_is_as_fast_as_float32() -> None:
    for name in ("P100", "GTX 1080 Ti"):
        sheet = find_gpu(name)
        assert rate(sheet, "float16", tensor=True) == rate(sheet, "float32", tensor=False)
    assert rate(find_gpu("T4"), "tf32", tensor=True) == rate(find_gpu("T4"), "float32", tensor=False)


def test_float64_has_its_own_rate_and_no_limit() -> None:
    for name in ("A100", "RTX 4090"):
        sheet = find_gpu(name)
        assert rate(sheet, "float64", tensor=False) == pytest.approx(sheet.float64_tflops * 1e12, rel=1e-3)
    unsaid = replace(find_gpu("RTX 4090"), float64_tflops=0.0)
    assert rate(unsaid, "float64", tensor=False) == pytest.approx(unsaid.float32_tflops * 1e12 / 64.0)


def test_matrix_cores_of_amd_multiply_float32() -> None:
    mi210 = find_gpu("MI210")
    assert mi210.matrix_float32_tflops > mi210.float32_tflops
    assert rate(mi210, "float32", tensor=False, matrix=True) > rate(mi210, "float32", tensor=False)


def seconds_of(kind: str, dtype: str, sheet: DataSheet) -> float:
    columns = np.array([[1e12, 1e6, *(64.0,) * (len(COLUMNS[kind]) - 2)]])
    return float(inputs(kind, columns, dtype, sheet)[0][0])


def test_tensor_cores_multiply_and_do_nothing_else() -> None:
    sheet = find_gpu("A100")
    for kind in ("product", "convolution", "attention", "recurrent"):
        assert seconds_of(kind, "float16", sheet) < 0.3 * seconds_of(kind, "float32", sheet), kind
    for kind in ("memory", "depthwise"):
        assert seconds_of(kind, "float16", sheet) == seconds_of(kind, "float32", sheet), kind


#: Eight SMs and a plain data sheet, so that logarithms come out whole.
PLAIN = replace(
    find_gpu("T4"), sms=8, float32_tflops=8.0, bandwidth_gbps=256.0, boost_mhz=1000, l2_mb=4.0,
    last_level_cache_mb=0.0, watts=1e6,
)  # fmt: skip

#: A row of each kind, and what the learnt part sees of it besides what all kinds have, counted by hand.
OWN: dict[str, tuple[dict[str, float], list[float]]] = {
    "product": (
        {"batch": 2, "m": 256, "n": 64, "k": 32, "a_transposed": 1, "b_transposed": 0},
        [1, 1, -1, 0, 0, 2, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 8, 6, 5, 1, -1, 1, 0, 1],
    ),
    "convolution": (
        {"batch": 1, "m": 144, "n": 64, "k": 36, "channels_last": 1, "to_input": 0, "to_weight": 0, "kernel": 9,
         "stride": 1, "in_channels": 4, "out_channels": 64, "dilated": 0, "one_d": 0, "three_d": 1, "image": 4},
        [2, math.log2(32768 / 9216), -2, math.log2(8 / 3), math.log2(12288 / 9216), 3, math.log2(32768 / 9216),
         math.log2(16 / 10), math.log2(160 / 144), 1, 0, 0, 1, 1, 1,
         math.log2(144), 6, math.log2(36), 0, 2, 6, 2, math.log2(9),
         math.log2(36), 2 * math.log2(8 / 6), 0, 4, 1, 0, 0, 0, 0, 1, 0, 0, 1],
    ),
    "attention": (
        {"batch": 16, "length": 256, "source": 64, "width": 32, "causal": 1, "masked": 0, "dropout": 1, "backward": 0},
        [2, 4, 8, 6, 5, 1, 0, 1, 0, 0],
    ),
    "recurrent": (
        {"length": 16, "batch": 4, "input": 8, "hidden": 64, "stacked": 2, "weights": 1000, "backward": 1},
        [4, 2, 3, 6, 1, 1, 5],
    ),
    "memory": (
        {"numel": 65536, "second": 12, "inner": 32, "strided": 1, "broadcast": 0, "flag": 1},
        [2, math.log2(12), 5, 2, 1, 0, 1, math.log2(1.5), math.log2(16 / 12), 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_inputs_are_what_the_network_was_fitted_to(kind: str) -> None:
    """Whoever changes one has to fit the network anew."""
    row, expected = OWN[kind]
    flops, moved = 2.0**24, 2.0**18 if kind == "memory" else 2.0**22
    columns = np.array([[flops, moved, *(row[name] for name in COLUMNS[kind][2:])]])
    (seconds,), (x,) = inputs(kind, columns, "float32", PLAIN)
    arithmetic, cached = flops / (8e12 * 0.97), 1.0 / (1.0 + (moved / (0.7 * 4e6)) ** 2)
    memory = moved * (cached / 256e9 + (1.0 - cached) / 256e9)  # this L2 is as fast as its memory
    assert seconds == pytest.approx(max(arithmetic, memory))
    shared = [math.log2(arithmetic / memory), math.log2(seconds) + 20, math.log2(moved / 4e6), 0, 0, 0, 0]
    assert x == pytest.approx([*shared, *expected, 0, 0, math.log2(8) - 6])


def test_inputs_tell_dtypes_and_old_and_other_gpus_apart() -> None:
    columns = np.array([[1e9, 1e6, *(64.0,) * (len(COLUMNS["product"]) - 2)]])
    flags = {dtype: inputs("product", columns, dtype, find_gpu("A100"))[1][0, 3:7].tolist() for dtype in DTYPES}
    assert flags == {
        "float32": [0, 0, 0, 0], "tf32": [1, 0, 0, 1], "float16": [1, 0, 0, 1], "bfloat16": [1, 0, 0, 1],
        "float64": [0, 1, 0, 0],
    }  # fmt: skip
    image = np.array([[1e9, 1e6, *(64.0,) * (len(COLUMNS["convolution"]) - 2)]])
    assert inputs("convolution", image, "tf32", find_gpu("A100"))[1][0, 3:7].tolist() == [0, 0, 1, 0]
    last = {name: inputs("product", columns, "float32", find_gpu(name))[1][0, -3:-1].tolist()
            for name in ("A100", "P100", "MI210")}  # fmt: skip
    assert last == {"A100": [0, 0], "P100": [0, 1], "MI210": [1, 0]}


@pytest.mark.parametrize(("kind", "few"), [("memory", 5e-6), ("product", 5e-6), ("convolution", 20e-6)])
def test_how_much_of_what_is_learnt_is_believed(kind: str, few: float) -> None:
    physics = np.array([1e-9, 1e-9, 1e-6, 1e-6, 1e-5, 1e-3])
    times = np.array([2.0, 1e6, 200.0, 1e6, 1e4, 0.3])
    most = np.array([2e-9, few, 200e-6, 30 * 11 * 1e-6, 30 * 101 * 1e-5, 0.3e-3])
    np.testing.assert_allclose(kernel_seconds(kind, physics, np.log(times)), most, rtol=1e-12)


@pytest.mark.parametrize("gpu", ["V100", "A100", "H100", "T4", "RTX 2080 Ti", "RTX 4090", "MI210", "MI300X"])
def test_a_small_kernel_takes_some_microseconds(gpu: str) -> None:
    ops = [
        work("aten::div", [spec(100, 16)], [spec(100, 16)]), work("aten::relu", [spec(100, 16)], [spec(100, 16)]),
        work("aten::native_layer_norm", [spec(100, 16), spec(16), spec(16)], [spec(100, 16), *[spec(100, 1)] * 2]),
    ]  # fmt: skip
    # Kernels of so few numbers take 1 to 5 us in profiler traces of V100, A100, H100, MI250 and MI300X.
    assert all(1e-6 < seconds < 8e-6 for seconds in DeviceModel(find_gpu(gpu)).price(ops)[0])
