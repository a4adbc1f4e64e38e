"""FLOPs, bytes and features of known ops, counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.pricing.describe import amounts, describe, describe_step, feature_names
from placer.pricing.families import FAMILIES, family_of
from placer.pricing.families.sharing import GRAIN
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES, Context
from placer.pricing.work import Work
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, TensorSpec, Trace
from placer.workload import make_workload

HERE = Context(footprint_bytes=1000, recording=True)


def spec(*shape: int, stride: tuple[int, ...] | None = None, dtype: str = "float32") -> TensorSpec:
    if stride is None:
        stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return TensorSpec(shape, stride, dtype)


def work(op: str, inputs: list[TensorSpec], outputs: list[TensorSpec], *args: Hashable, **facts: Any) -> Work:
    return describe(OpCall(op, tuple(inputs), tuple(outputs), args, **facts), HERE)


def traced(model: nn.Module, op: str, *shapes: tuple[int, ...], mode: str = "train", **workload: Any) -> Work:
    """The only call of ``op`` in a step of ``model``."""
    step = trace(make_workload(model, shapes or None, mode=mode, **workload))
    (call,) = (call for call in step.calls if call.op == op)
    return describe(call, Context.of(step))


def feature(found: Work, name: str) -> float:
    return dict(zip(feature_names(found.family), (*found.sizes, *found.flags), strict=True))[name]


def test_addmm_counts_the_product_and_moves_every_operand() -> None:
    found = work("aten::addmm", [spec(7), spec(3, 5), spec(5, 7)], [spec(3, 7)])
    assert (found.family, found.flops) == ("matmul", 2 * 3 * 5 * 7)
    assert found.bytes == 4 * (7 + 15 + 35 + 21)
    assert found.sizes[:4] == (1, 3, 7, 5)


RAGGED: dict[str, tuple[nn.Module, tuple[int, ...], bool]] = {
    "rows of whole registers": (nn.Linear(5, 48), (3, 5), False),
    "rows that end within one": (nn.Linear(5, 47), (3, 5), True),
    "a single column": (nn.Linear(5, 1), (3, 5), False),
    "channels in blocks": (nn.Conv2d(16, 32, 3), (2, 16, 8, 8), False),
    "channels of the image not": (nn.Conv2d(3, 32, 3), (2, 3, 8, 8), True),
    "channels of the result not": (nn.Conv1d(16, 20, 3), (2, 16, 8), True),
    "a grey image": (nn.Conv2d(1, 16, 3), (2, 1, 8, 8), False),
    "channels of all groups together": (nn.Conv2d(32, 32, 3, groups=32), (2, 32, 8, 8), False),
    "the same transposed": (nn.ConvTranspose2d(32, 32, 3, groups=4), (2, 32, 8, 8), False),
}


@pytest.mark.parametrize("name", RAGGED)
def test_what_fills_no_vector_register_is_ragged(name: str) -> None:
    model, shape, expected = RAGGED[name]
    linear = isinstance(model, nn.Linear)
    forward = traced(model, "aten::addmm" if linear else "aten::convolution", shape, mode="infer")
    assert feature(forward, "ragged") == expected
    if not linear:
        assert feature(traced(model, "aten::convolution_backward", shape), "ragged") == expected


@pytest.mark.parametrize("op", ["aten::new_zeros", "aten::new_ones", "aten::new_full"])
def test_what_only_says_of_what_kind_the_result_is_is_not_read(op: str) -> None:
    """A small tensor made like a large one was taken for a reading of the large one."""
    found = work(op, [spec(500, 32)], [spec(10)])
    assert (found.family, found.bytes) == ("elementwise", 40)
    assert found.sizes == work("aten::zeros", [], [spec(10)]).sizes


def test_reading_one_number_moves_nothing() -> None:
    found = work("aten::_local_scalar_dense", [spec()], [])
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_bmm_counts_the_batch_and_sees_transposed_operands() -> None:
    found = work("aten::bmm", [spec(4, 2, 3), spec(4, 3, 5, stride=(15, 1, 3))], [spec(4, 2, 5)])
    assert found.flops == 2 * 4 * 2 * 3 * 5
    assert (feature(found, "a_transposed"), feature(found, "b_transposed")) == (0, 1)


def test_a_matrix_vector_product() -> None:
    found = work("aten::mv", [spec(6, 8), spec(8)], [spec(6)])
    assert (found.flops, found.bytes) == (2 * 6 * 8, 4 * (48 + 8 + 6))


CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    # 2 x batch x output positions x output channels x (input channels / groups) x kernel
    "1d": (lambda: nn.Conv1d(3, 8, 5), (2, 3, 20), 2 * 2 * 16 * 8 * 3 * 5),
    "2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 6, 7), 2 * 2 * 42 * 8 * 3 * 9),
    "2d, strided": (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), 2 * 16 * 8 * 4 * 9),
    "3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), 2 * 64 * 4 * 2 * 27),
    "grouped": (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 10, 10), 2 * 2 * 64 * 16 * 2 * 9),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 5, 5), 2 * 25 * 8 * 1 * 9),
    # Here every *input* position meets every kernel element.
    "transposed": (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 5), 2 * 2 * 25 * 8 * 6 * 9),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(8, 6, 4, groups=2), (2, 8, 10), 2 * 2 * 10 * 8 * 3 * 4),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    build, shape, flops = CONVOLUTIONS[name]
    model = build()
    found = traced(model, "aten::convolution", shape, mode="infer")
    assert found.flops == flops
    out = model(torch.zeros(shape))
    parameters = sum(p.numel() for p in model.parameters())
    assert found.bytes == 4 * (math.prod(shape) + out.numel() + parameters)
    assert feature(found, "transposed") == ("transposed" in name)
    assert amounts(found, 1)["activations"] == math.prod(shape) + out.numel()
    # Only the weight's gradient is asked for: as much arithmetic as forward.
    assert traced(model, "aten::convolution_backward", shape).flops == flops


def test_a_convolution_in_the_middle_costs_two_gradients() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3))
    step = trace(make_workload(model, (2, 3, 6, 6), mode="train"))
    forward = [describe(c, HERE).flops for c in step.calls if c.op == "aten::convolution"]
    backward = [describe(c, HERE) for c in step.calls if c.op == "aten::convolution_backward"]
    assert [w.flops for w in backward] == [2 * forward[1], forward[0]]
    assert [feature(w, "to_input") for w in backward] == [1, 0]


def test_filled_up_channels_and_unfolded_patches() -> None:
    found = traced(nn.Conv2d(3, 20, 3, padding=1), "aten::convolution", (1, 3, 4, 4), mode="infer")
    extra = amounts(found)
    # 20 -> 32 channels; the three of the image are read as they lie
    assert extra["filling_flops"] == pytest.approx(2 * 16 * 3 * (32 - 20) * 9)
    assert extra["unfolded_bytes"] == 4 * 16 * 3 * 9
    assert amounts(traced(nn.Conv2d(32, 48, 3), "aten::convolution", (1, 32, 4, 4)))["filling_flops"] == 0
    wide = traced(nn.Conv2d(20, 16, 1), "aten::convolution", (1, 20, 4, 4), mode="infer")
    assert amounts(wide)["filling_flops"] == pytest.approx(2 * 16 * 16 * (32 - 20))


def test_the_gradient_of_an_image_of_few_channels_is_filled_up() -> None:
    step = trace(make_workload(nn.Sequential(nn.Conv2d(16, 3, 1), nn.Conv2d(3, 16, 1)), (1, 16, 4, 4), mode="train"))
    to_both, to_weight = [describe(c, HERE) for c in step.calls if c.op == "aten::convolution_backward"]
    one = 2 * 16 * 16 * 3  # FLOPs of each gradient
    assert amounts(to_both)["filling_flops"] == pytest.approx(2 * one * (16 / 3 - 1))
    assert amounts(to_weight)["filling_flops"] == pytest.approx(one * (16 / 3 - 1))


class Attend(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.project = causal, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def test_attention_is_two_products_forward_and_five_backward() -> None:
    forward = traced(Attend(), "aten::scaled_dot_product_attention", (3, 5, 8))
    backward = traced(Attend(), "aten::scaled_dot_product_attention_backward", (3, 5, 8))
    product = 2 * (3 * 2) * 5 * 5 * 4  # batch x heads, queries, keys, width of a head
    assert forward.flops == 2 * product
    assert backward.flops == 5 * product
    assert forward.sizes[:4] == (6, 5, 5, 4)
    assert feature(forward, "causal") == 0
    assert feature(traced(Attend(True), "aten::scaled_dot_product_attention", (3, 5, 8)), "causal") == 1


@pytest.mark.parametrize(
    ("build", "op", "hidden", "left_over"),
    [
        (nn.GRU, "aten::gru", 32, 0),
        (nn.GRU, "aten::gru", 40, 6 * 4 * 8),
        (nn.GRU, "aten::gru_backward", 40, 0),  # takes no exponentials
        (nn.LSTM, "aten::lstm", 40, 0),  # is oneDNN's
        (nn.RNN, "aten::rnn_tanh", 40, 0),  # has no gates
        (nn.GRUCell, "aten::gru_cell", 40, 4 * 8),
        (nn.LSTMCell, "aten::lstm_cell", 40, 4 * 8),
    ],
)
def test_rows_of_gates_that_fill_no_pairs_of_registers(
    build: Callable[[int, int], nn.Module], op: str, hidden: int, left_over: int
) -> None:
    shape = (4, 5) if op.endswith("_cell") else (6, 4, 5)
    found = traced(build(5, hidden), op, shape)
    assert amounts(found)["left_over"] == left_over
    assert amounts(found)["width_padding_flops"] == pytest.approx(found.flops * (48 / 40 - 1) if hidden == 40 else 0)


LAYERS: dict[str, tuple[Callable[[], nn.Module], str, int]] = {
    "lstm": (lambda: nn.LSTM(5, 7), "lstm", 28 * 5 + 28 * 7),
    "lstm, two layers": (lambda: nn.LSTM(5, 7, 2), "lstm", 28 * 5 + 28 * 7 + 2 * 28 * 7),
    "gru": (lambda: nn.GRU(5, 7), "gru", 21 * 5 + 21 * 7),
    "gru, both ways": (lambda: nn.GRU(5, 7, bidirectional=True), "gru", 2 * (21 * 5 + 21 * 7)),
    "rnn": (lambda: nn.RNN(5, 7), "rnn_tanh", 7 * 5 + 7 * 7),
}


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(name: str) -> None:
    build, op, weights = LAYERS[name]
    forward = traced(build(), f"aten::{op}", (3, 4, 5))  # 3 time steps, a batch of 4
    backward = traced(build(), f"aten::{op}_backward", (3, 4, 5))
    assert forward.flops == 2 * 3 * 4 * weights
    assert backward.flops == 2 * forward.flops
    for found, flag in ((forward, 0), (backward, 1)):
        assert found.sizes[:4] == (3, 4, 5, 7)
        assert feature(found, "backward") == flag


CELLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lstm_cell": (lambda: nn.LSTMCell(5, 7), 28 * 12),
    "gru_cell": (lambda: nn.GRUCell(5, 7), 21 * 12),
    "rnn_tanh_cell": (lambda: nn.RNNCell(5, 7), 7 * 12),
}


@pytest.mark.parametrize("op", CELLS)
@pytest.mark.parametrize("batch", [4, 7, 21, 28], ids="batch {}".format)
def test_recurrent_cells(op: str, batch: int) -> None:
    """Also where the batch makes the input look like a weight (gates x hidden rows)."""
    build, weights = CELLS[op]
    forward = traced(build(), f"aten::{op}", (batch, 5))
    backward = traced(build(), f"aten::{op}_backward", (batch, 5))
    assert forward.flops == 2 * batch * weights
    assert backward.flops == 2 * forward.flops
    assert forward.sizes[:5] == backward.sizes[:5] == (1, batch, 5, 7, 1)


def test_an_embedding_reads_the_rows_it_looks_up_not_its_table() -> None:
    ids = torch.zeros(4, 6, dtype=torch.long)
    forward = traced(nn.Embedding(50_000, 8), "aten::embedding", example=(ids,))
    assert forward.bytes == 2 * 4 * (24 * 8) + 8 * 24
    assert forward.sizes[:4] == (24 * 8, 50_000 * 8, 24, 8)
    backward = traced(nn.Embedding(50, 8), "aten::embedding_dense_backward", example=(ids,))
    # Rows are added up in a gradient that is as large as the table, and has to be made first.
    assert backward.bytes == 3 * 4 * (24 * 8) + 2 * 4 * (50 * 8) + 8 * 24


def test_elementwise_ops() -> None:
    found = work("aten::add", [spec(4, 8), spec(8)], [spec(4, 8)], 1)
    assert (found.family, found.flops, found.bytes) == ("elementwise", 32, 4 * (32 + 8 + 32))
    assert feature(found, "broadcast") == 1
    assert work("aten::tanh", [spec(32)], [spec(32)]).flops > found.flops
    assert feature(work("aten::mul", [spec(4, 8, stride=(1, 4))], [spec(4, 8)]), "strided") == 1


def test_a_broadcast_operand_is_stored_once() -> None:
    found = work("aten::mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)])
    assert found.bytes == 4 * (32 + 8 + 32)


def test_reductions_know_which_dimension_survives() -> None:
    outer = work("aten::sum", [spec(16, 8)], [spec(8)], (0,))
    inner = work("aten::sum", [spec(16, 8)], [spec(16)], (1,))
    assert (outer.flops, outer.bytes) == (128, 4 * (128 + 8))
    assert (feature(outer, "inner_survives"), feature(inner, "inner_survives")) == (1, 0)


def test_a_view_moves_nothing() -> None:
    found = work("aten::transpose", [spec(64, 64)], [spec(64, 64, stride=(1, 64))], 0, 1, view=True)
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_an_update_in_place_is_no_view() -> None:
    assert work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True).bytes > 0


@pytest.mark.parametrize("op", ["aten::never_heard_of", "mylib::conv", "aten::linalg_lu_solve"])
def test_an_unregistered_op_is_never_free(op: str) -> None:
    for inputs, outputs in (([spec(8, 8)], [spec(8, 8)]), ([spec(8, 8)], [spec()]), ([], [spec(64)])):
        found = work(op, inputs, outputs)
        assert found.flops > 0
        assert found.bytes >= 4 * (64 if inputs else 1)


def test_what_an_unregistered_op_looks_like() -> None:
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8, 8)]).family == "elementwise"
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8)]).family == "other"
    assert work("mylib::anything", [spec(8, 8)], [spec(8, 8)]).family == "other"
    assert family_of("optimizer::Anything") == "optimizer"


def test_an_overload_with_too_few_operands_falls_back() -> None:
    found = work("aten::convolution", [spec(8, 8)], [spec(8, 8)])
    assert found.family == "other"
    assert found.bytes == 4 * 128


def test_one_is_not_true() -> None:
    image, weight, out = spec(1, 4, 8, 8), spec(4, 4, 1, 1), spec(1, 4, 8, 8)
    not_transposed = work("aten::convolution", [image, weight], [out], (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    assert feature(not_transposed, "transposed") == 0
    normalized = [spec(4, 8), spec(8), spec(8)]
    one = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], 1, 0.1, 1e-5)
    true = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], True, 0.1, 1e-5)
    assert (feature(one, "training"), feature(true, "training")) == (0, 1)
    heads = [spec(2, 4, 8, 16)] * 3
    assert feature(work("aten::scaled_dot_product_attention", heads, heads[:1], 1, False, 0.0, False), "causal") == 0


def test_an_optimizers_passes() -> None:
    adam = work("optimizer::Adam", [spec(100)], [], ("weight_decay", True), phase="optimizer")
    sgd = work("optimizer::SGD", [spec(100)], [], ("momentum", True), phase="optimizer")
    assert (adam.bytes, sgd.bytes) == (7 * 400, 3 * 400)
    assert (feature(adam, "weight_decay"), feature(adam, "momentum")) == (1, 0)
    assert feature(sgd, "momentum") == 1


def test_the_place_in_the_step_is_a_feature() -> None:
    kept = work("aten::relu", [spec(8)], [spec(8)], kept_bytes=32)
    backward = work("aten::relu", [spec(8)], [spec(8)], phase="backward")
    assert (feature(kept, "kept"), feature(kept, "recording"), feature(kept, "footprint")) == (1, 1, 1000)
    assert (feature(backward, "kept"), feature(backward, "recording")) == (0, 0)


def test_the_dtype_is_the_results() -> None:
    assert work("aten::mm", [spec(2, 2, dtype="bfloat16")] * 2, [spec(2, 2, dtype="bfloat16")]).dtype == "bfloat16"
    assert work("aten::embedding", [spec(9, 2), spec(3, dtype="int64")], [spec(3, 2)]).dtype == "float32"


def test_an_operand_of_another_dtype_is_converted_first() -> None:
    """A product with a mask copies the mask into numbers; a single number is converted where it stands."""
    assert work("aten::mul", [spec(4, 3), spec(3, dtype="bool")], [spec(4, 3)]).dtype == "float32+bool"
    assert work("aten::mul_", [spec(4, dtype="int64"), spec(4)], [spec(4)]).dtype == "float32+int64"
    assert work("aten::add", [spec(4), spec(4, dtype="float64")], [spec(4, dtype="float64")]).dtype == "float64+float32"
    assert work("aten::mul", [spec(4), spec(dtype="float64")], [spec(4)]).dtype == "float32"
    assert work("aten::mul", [spec(4), spec(4)], [spec(4)]).dtype == "float32"
    assert work("aten::where", [spec(4, dtype="bool"), spec(4), spec(4)], [spec(4)]).dtype == "float32"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_all_its_features(family: str) -> None:
    names = feature_names(family)
    assert len(set(names)) == len(names)
    start = len(FAMILIES[family].sizes)
    assert names[start : start + len(CONTEXT_SIZES)] == CONTEXT_SIZES
    assert names[-len(CONTEXT_FLAGS) :] == CONTEXT_FLAGS


def test_an_op_knows_what_went_through_the_caches_before_it() -> None:
    large, small = spec(1 << 20), spec(4)
    calls = [
        OpCall("aten::relu", (small,), (small,)),
        OpCall("aten::relu", (large,), (large,)),
        OpCall("aten::view", (large,), (large,), view=True),
        OpCall("aten::relu", (small,), (small,)),
    ]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    before = [feature(w, "previous") for w in works]
    # Steps follow each other; a view moves nothing, and so leaves what was before it.
    assert before == [32, 32, 8 << 20, 8 << 20]
    assert works[0] is not works[3]


def test_equal_work_in_equal_places_is_one_object() -> None:
    calls = tuple(OpCall("aten::relu", (spec(8),), (spec(8),)) for _ in range(5))
    first, *rest = describe_step(Trace(calls, "infer", (), (), (), ()))
    assert len({id(w) for w in rest}) == 1
    assert first != rest[0]


def test_rows_that_are_walked_one_by_one() -> None:
    by_row = work("aten::mul", [spec(6, 4), spec(6, 1)], [spec(6, 4)])
    assert (feature(by_row, "inner"), amounts(by_row)["restarts"]) == (4, 5)
    assert (feature(by_row, "block"), amounts(by_row)["blocks"]) == (24, 0)
    whole = work("aten::mul", [spec(6, 4), spec(6, 4)], [spec(6, 4)])
    assert (feature(whole, "inner"), amounts(whole)["restarts"]) == (24, 0)
    apart = work("aten::clone", [spec(6, 4, stride=(1, 6))], [spec(6, 4)])
    assert (feature(apart, "strided"), amounts(apart)["strided"]) == (1, 24)
    patches = work("aten::clone", [spec(5, 6, 3, 2, stride=(7, 1, 7, 1))], [spec(5, 6, 3, 2)])
    assert (feature(patches, "block"), amounts(patches)["blocks"]) == (6, 29)


def test_python_displaces_the_code_of_forward_ops_alone() -> None:
    x = spec(4)
    calls = OpCall("aten::relu", (x,), (x,)), OpCall("aten::tanh", (x,), (x,), phase="backward")
    works = describe_step(Trace(calls, "train", (), (), (), (), python_calls=40, evicted_calls=10.0))
    assert [feature(found, "evicted") for found in works] == [0.25, 0]
    assert amounts(works[0])["evicted"] == 0.25


def test_an_op_in_a_loop_is_less_stale_than_one_that_stands_alone() -> None:
    small, large = spec(4), spec(1 << 20)
    calls = [OpCall("aten::relu", (small,), (small,))] * 3 + [OpCall("aten::exp", (large,), (large,))]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    assert [feature(found, "first") for found in works] == [1, 0, 0, 1]
    assert [feature(found, "reuse_distance") for found in works] == [8 << 20, 0, 0, 128]
    assert [amounts(found)["reuse_distance"] for found in works] == [pytest.approx(0.9, abs=1e-6), 0, 0, 0]


def numbers(*shape: int, stride: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(shape, stride or spec(*shape).stride, "int64")


@pytest.mark.parametrize(
    ("op", "inputs", "out", "args", "whole"),
    [
        ("aten::index", [spec(50, 64), numbers(8)], spec(8, 64), (), True),
        ("aten::index", [spec(50, 64), numbers(8)], spec(50, 8), (), False),
        ("aten::index_select", [spec(50, 64), numbers(8)], spec(8, 64), (-2,), True),
        ("aten::index_select", [spec(50, 64), numbers(32)], spec(50, 32), (1,), False),
        ("aten::embedding", [spec(50, 64), numbers(8)], spec(8, 64), (-1, False, False), True),
    ],
)
def test_what_belongs_to_one_index_lies_side_by_side(
    op: str, inputs: list[TensorSpec], out: TensorSpec, args: tuple[Hashable, ...], whole: bool
) -> None:
    assert feature(work(op, inputs, [out], *args), "wide") == whole


def test_a_reduction_that_leaves_out_what_was_there_writes_it_first() -> None:
    operands = [spec(10, 8), numbers(50, 8, stride=(1, 0)), spec(50, 8)]
    with_it, without = (
        work("aten::scatter_reduce_", operands, [spec(10, 8)], 0, "amax", kept, in_place=True) for kept in (True, False)
    )
    assert amounts(with_it)["renewed"] == 0
    assert amounts(without)["renewed"] == 400


def test_an_index_that_is_broadcast_over_rows_moves_whole_rows() -> None:
    index = TensorSpec((50, 8), (1, 0), "int64")
    found = work("aten::scatter_add_", [spec(10, 8), index, spec(50, 8)], [spec(10, 8)], 0, in_place=True)
    assert found.family == "indexing"
    assert found.sizes[:4] == (400, 80, 50, 8)
    assert feature(found, "expanded") == 1


def test_attention_with_dropout_has_no_fused_kernel() -> None:
    q = spec(2, 4, 16, 8)
    fused = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.0, False)
    plain = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.1, False)
    assert feature(fused, "dropout") == 0
    assert amounts(plain)["dropped_scores"] == 2 * 4 * 16 * 16


def test_the_fused_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    found = traced(layer, "aten::_transformer_encoder_layer_fwd", example=(torch.randn(3, 7, 16),), mode="infer")
    weights = 16 * 48 + 16 * 16 + 2 * 16 * 32
    assert found.family == "encoder"
    assert found.sizes[:5] == (21, 7, 16, weights, 4)
    assert found.flops == 2 * 21 * weights + 4 * 21 * 7 * 16


def test_gradients_of_picked_rows_are_added_one_by_one_where_cores_share_them() -> None:
    def added(rows: int) -> float:
        class Picked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = nn.Parameter(torch.randn(100, 64))

            def forward(self, index: Tensor) -> Tensor:
                return self.table[index]

        found = trace(make_workload(Picked(), None, example=(torch.randint(0, 100, (rows,)),), mode="train"))
        (put,) = [work for work in describe_step(found) if work.op == "aten::index_put"]
        return amounts(put)["added_in_turns"]

    assert added(512) == 512 * 64 == GRAIN
    assert added(511) == 0
