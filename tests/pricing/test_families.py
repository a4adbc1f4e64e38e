"""What ops are described by: families, FLOPs, bytes, features, and the amounts that their time is a sum over."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from described import HERE, spec, traced, work
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.pricing import FAMILIES, Context, Work, describe, describe_step, feature_names, floor_amounts, op_label
from placer.pricing.describe import CONTEXT_FLAGS, CONTEXT_SIZES, known_labels, launches, on_accelerator, ops_inside
from placer.pricing.families import family_of, parameter_updates
from placer.pricing.families.loops import Loop, innermost
from placer.profile import load, shipped
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, TensorSpec, Trace, spec_of
from placer.workload import make_workload

RATES = {"dispatch_seconds": 2e-6, "flops/float32": 1e13, "bytes_per_second": 1e12}


def facts(found: Work, threads: int = 1) -> dict[str, Any]:
    """All that a work says of its op, by name; features of its own before amounts of the same name."""
    features = dict(zip(feature_names(found.family), (*found.sizes, *found.flags), strict=True))
    whole = {"family": found.family, "op": found.op, "dtype": found.dtype, "flops": found.flops, "bytes": found.bytes}
    counted = {f"x {name}": amount for name, amount in floor_amounts(found, RATES, threads=threads).items()}
    return {**counted, **features, **whole, "label": op_label(found), "inside": ops_inside(found)}


def check(found: Work, expected: dict[str, Any], threads: int = 1) -> None:
    known = facts(found, threads)
    for name, value in expected.items():
        assert known[name] == (pytest.approx(value) if isinstance(value, float) else value), name


def numbers(*shape: int, stride: tuple[int, ...] | None = None) -> TensorSpec:
    return spec(*shape, stride=stride, dtype="int64")


X, MASK = spec(6, 30), spec(6, 30, dtype="bool")
COMPLEX = spec(6, 16, dtype="complex64")
Q, K, V = spec(2, 4, 5, 8), spec(2, 4, 7, 8), spec(2, 4, 7, 6)
BROADCAST = numbers(50, 64, stride=(1, 0))

#: An op, its operands and results, its other arguments, and what is known of it. ``x`` are amounts.
CALLS: list[tuple[str, list[TensorSpec], list[TensorSpec], tuple[Hashable, ...], dict[str, Any]]] = [
    # Elementwise ops, and the loops they walk.
    ("add", [spec(4, 8), spec(8)], [spec(4, 8)], (1,), {"family": "elementwise", "flops": 32, "bytes": 288,
     "broadcast": 1, "strided": 0, "label": "aten::add"}),
    ("mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)], (), {"bytes": 288, "broadcast": 1}),
    ("mul", [spec(4, 8), spec()], [spec(4, 8)], (), {"broadcast": 0}),
    ("exp", [spec(32)], [spec(32)], (), {"flops": 320}),
    ("mul", [spec(6, 4), spec(6, 1)], [spec(6, 4)], (), {"inner": 4, "x restarts": 5, "block": 24, "x blocks": 0}),
    ("clone", [spec(6, 4, stride=(1, 6))], [spec(6, 4)], (), {"strided": 1, "x strided": 24}),
    ("clone", [spec(5, 6, 3, 2, stride=(7, 1, 7, 1))], [spec(5, 6, 3, 2)], (), {"block": 6, "x blocks": 29}),
    ("new_zeros", [spec(500, 32)], [spec(10)], (), {"family": "elementwise", "bytes": 40}),  # reads nothing
    ("mul", [X, MASK], [X], (), {"dtype": "float32+bool", "label": "aten::mul:float32+bool"}),
    ("mul", [X], [X], (0.5,), {"op": "aten::mul.number"}),
    ("never_heard_of", [spec(8, 8)], [spec(8, 8)], (), {"family": "elementwise", "flops": 64, "bytes": 512}),
    ("rand_like", [spec(4, 8)], [spec(4, 8)], (), {"family": "random", "flops": 32, "numel": 32}),
    ("abs", [COMPLEX], [spec(6, 16)], (), {"dtype": "complex64"}),
    # What lies side by side is copied run by run: from the dimension on along which it lies, which a stack adds.
    ("stack", [spec(6)] * 3, [spec(6, 3)], (-1,), {"inner": 1, "block": 6, "x restarts": 17, "x blocks": 2}),
    ("stack", [spec(6)] * 3, [spec(6, 3)], (1,), {"inner": 1, "block": 6}),
    ("stack", [spec(6)] * 3, [spec(3, 6)], (0,), {"inner": 6, "block": 6, "x restarts": 2}),
    *(("stack", [spec(4, 4)] * 4, [spec(4, 4, 4)], (dim,), {"inner": inner, "block": 16})
      for dim, inner in ((0, 16), (1, 4), (2, 1), (-1, 1), (-3, 16))),
    ("cat", [spec(6, 1)] * 2, [spec(6, 2)], (-1,), {"inner": 1, "block": 6}),  # nothing is broadcast
    ("cat", [spec(6, 1), spec(6, 3)], [spec(6, 4)], (1,), {"inner": 2, "x restarts": 11}),
    ("cat", [spec(0), spec(5), spec(3)], [spec(8)], (0,), {"inner": 4, "x restarts": 1}),
    # Rows, windows and reductions.
    ("_softmax", [spec(4, 8, 16)], [spec(4, 8, 16)], (-1, False), {"family": "softmax", "flops": 6144, "row": 16}),
    ("_softmax", [spec()], [spec()], (), {"numel": 1, "row": 1}),
    ("_log_softmax_backward_data", [spec(8, 4, stride=(1, 8)), spec(8, 4)], [spec(8, 4)], (), {"strided": 1, "row": 4}),
    ("sort", [X], [X], (), {"family": "sorting", "row": 30, "x compared": 900.0}),
    ("native_layer_norm", [spec(6, 50), spec(50)], [spec(6, 50)], (), {"family": "normalization", "flops": 2400,
     "channels": 50, "training": 0}),
    ("native_batch_norm", [spec(6, 2, 9), spec(2)], [spec(6, 2, 9)], (True,), {"training": 1, "channels": 2}),
    ("native_batch_norm", [spec(6, 2, 9), spec(2)], [spec(6, 2, 9)], (1,), {"training": 0}),  # 1 is not True
    ("native_batch_norm", [spec(4, 8), spec(8)], [spec(4, 8)], (True,), {"op": "aten::native_batch_norm.rows"}),
    ("upsample_nearest2d", [spec(1, 1, 2, 2)], [spec(1, 1, 4, 4)], (), {"family": "pooling", "numel": 16, "window": 1,
     "x compared": 16}),
    ("sum", [spec(16, 8)], [spec(8)], (0,), {"family": "reduction", "flops": 128, "bytes": 544, "inner_survives": 1}),
    ("sum", [spec(16, 8)], [spec(16)], (1,), {"inner_survives": 0, "x row_results": 16}),
    ("sum", [spec(16, 1)], [spec(1)], (0,), {"inner_survives": 0}),
    ("sum", [], [spec()], (), {"flops": 0}),
    ("sum", [MASK], [numbers()], (), {"op": "aten::sum.mask"}),
    ("mse_loss_backward", [spec(), spec(90, 1), spec(90, 1)], [spec(90, 1)], (), {"x row_results": 0}),
    # Rows that are moved by index.
    ("embedding", [spec(50_000, 8), numbers(4, 6)], [spec(4, 6, 8)], (), {"family": "indexing", "bytes": 1728,
     "moved": 192, "table": 400_000, "indices": 24, "width": 8}),
    ("embedding_dense_backward", [spec(4, 6, 8), numbers(4, 6)], [spec(50, 8)], (), {"bytes": 2304 + 3200 + 192}),
    ("index", [spec(50, 64), numbers(8)], [spec(8, 64)], (), {"wide": 1, "dtype": "float32"}),
    ("index", [spec(50, 64), numbers(8)], [spec(50, 8)], (), {"wide": 0}),
    ("index_select", [spec(50, 64), numbers(32)], [spec(50, 32)], (1,), {"wide": 0}),
    ("index_select", [spec(50, 15), numbers(8)], [spec(8, 15)], (0,), {"wide": 0}),  # too narrow
    ("index", [X, MASK], [spec(5)], (), {"op": "aten::index.mask"}),
    ("index_add", [spec(10, 16), numbers(5), spec(5, 16)], [spec(10, 16)], (0,), {"bytes": 12 * 80 + 40 + 8 * 160,
     "x moved": 80, "x moved_singly": 0, "x table": 160, "x indices": 5}),
    ("scatter_add", [spec(10, 64), BROADCAST, spec(50, 64)], [spec(10, 64)], (0,), {"expanded": 1, "indices": 50,
     "x moved_singly": 0}),
    ("scatter", [spec(10, 64), BROADCAST, spec(50, 64)], [spec(10, 64)], (0,), {"x moved": 3200,
     "x moved_singly": 3200}),
    ("scatter", [spec(10, 64), BROADCAST], [spec(10, 64)], (0, 0), {"op": "aten::scatter.number", "x moved": 6400}),
    ("scatter_reduce", [spec(10, 8), numbers(50, 8), spec(50, 8)], [spec(10, 8)], (0, "amax", False),
     {"x renewed": 400}),
    ("gather", [spec(256, 500, dtype="int64"), numbers(256, 1)], [numbers(256, 1)], (1,), {"moved": 256,
     "table": 128_000, "indices": 256}),  # a table of integers is no index
    ("index_put", [spec(9, 64), numbers(512), spec(512, 64)], [spec(9, 64)], (True,), {"x added_in_turns": 32768,
     "op": "aten::index_put.accumulate"}),
    ("index_put", [spec(9, 64), numbers(511), spec(511, 64)], [spec(9, 64)], (True,), {"x added_in_turns": 0}),
    # Products, attention, factorisations and transforms.
    ("addmm", [spec(7), spec(3, 5), spec(5, 7)], [spec(3, 7)], (), {"family": "matmul", "flops": 210, "bytes": 312,
     "m": 3, "n": 7, "k": 5, "ragged": 1}),
    ("bmm", [spec(4, 2, 3), spec(4, 3, 5, stride=(15, 1, 3))], [spec(4, 2, 5)], (), {"flops": 240, "a_transposed": 0,
     "b_transposed": 1, "x rows": 8, "x further": 3, "x depth": 0, "x padding_flops": 240 * (8 * 3.2 - 1)}),
    ("mm", [spec(8, 100, stride=(1, 8)), spec(100, 16)], [spec(8, 16)], (), {"a_transposed": 1, "x depth": 100}),
    ("mm", [spec(4, 1, stride=(1, 4)), spec(1, 4)], [spec(4, 4)], (), {"a_transposed": 0}),
    ("mv", [spec(6, 8), spec(8)], [spec(6)], (), {"flops": 96, "bytes": 248, "column": 1, "row": 0}),
    ("mm", [spec(2, 2, dtype="bfloat16")] * 2, [spec(2, 2, dtype="bfloat16")], (), {"label": "aten::mm:bfloat16"}),
    ("scaled_dot_product_attention", [Q, K, V], [spec(2, 4, 5, 6)], (False, False, 0.1), {"family": "attention",
     "flops": 2 * 8 * 5 * 7 * 14, "batch": 8, "length": 5, "source": 7, "width": 8, "causal": 0, "masked": 0,
     "x scores": 280, "x rows": 8, "x dropped_scores": 280}),
    ("scaled_dot_product_attention", [Q, K, V, spec(5, 7)], [spec(2, 4, 5, 6)], (True,), {"masked": 1, "causal": 1,
     "x dropped_scores": 0}),
    ("_native_multi_head_attention", [spec(3, 7, 16), spec(16, 16), spec(7, 7)], [spec(3, 7, 16)], (16, 4),
     {"family": "encoder", "tokens": 21, "length": 7, "weights": 256, "x scores": 588, "x activations": 336}),
    ("linalg_inv_ex", [spec(3, 8, 8)], [spec(3, 8, 8), spec(3)], (), {"family": "linear_algebra", "flops": 3072,
     "x squares": 192, "x matrices": 3}),
    ("linalg_qr", [spec(100), spec(2, 6, 4)], [spec(2, 6, 4)], (), {"rows": 6, "columns": 4, "inner": 4, "flops": 384}),
    ("_cdist_forward", [spec(2, 5, 3), spec(2, 7, 3)], [spec(2, 5, 7)], (2.0,), {"flops": 420, "inner": 3}),
    ("_cdist_backward", [spec(2, 5, 7), spec(2, 5, 3), spec(2, 7, 3), spec(2, 5, 7)], [spec(2, 5, 3)], (2.0,),
     {"flops": 420}),
    ("_fft_c2c", [X], [X], ((0, 1), 0, True), {"family": "fourier", "length": 180, "flops": 900 * math.log2(182)}),
    ("_fft_r2c", [X], [COMPLEX], ((1,),), {"numel": 180, "length": 30, "dtype": "float32"}),
    ("_fft_c2r", [COMPLEX], [X], ((1,),), {"dtype": "complex64"}),
    # What moves nothing, and what has no formula.
    ("_local_scalar_dense", [spec()], [], (), {"family": "view", "flops": 0, "bytes": 0}),
    ("convolution", [spec(8, 8)], [spec(8, 8)], (), {"family": "other", "bytes": 512}),  # too few operands
    ("linalg_matrix_power", [spec(4, 4)], [spec(4, 4)], (), {"family": "other"}),
    ("never_heard_of", [spec(8, 8)], [spec(8)], (), {"family": "other", "flops": 64, "inputs": 64, "outputs": 8}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda i: f"{CALLS[i][0]}-{i}")
def test_an_op_by_hand_is_described_by(number: int) -> None:
    op, inputs, outputs, args, expected = CALLS[number]
    check(work(f"aten::{op}", inputs, outputs, *args), expected)


@pytest.mark.parametrize("op", ["aten::never_heard_of", "mylib::conv", "aten::linalg_lu_solve"])
def test_an_unregistered_op_is_never_free(op: str) -> None:
    for inputs, outputs in (([spec(8, 8)], [spec(8, 8)]), ([spec(8, 8)], [spec()]), ([], [spec(64)])):
        found = work(op, inputs, outputs)
        assert found.flops > 0
        assert found.bytes >= 4 * (64 if inputs else 1)
    assert family_of("optimizer::Anything") == "optimizer"
    assert work("mylib::anything", [spec(8, 8)], [spec(8, 8)]).family == "other"


def test_views_move_nothing_and_updates_in_place_do() -> None:
    check(work("aten::transpose", [spec(8, 4)], [spec(4, 8)], view=True), {"family": "view", "flops": 0, "bytes": 0})
    added = work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True)
    check(added, {"in_place": 1, "bytes": 768, "label": "aten::add"})  # not another op
    assert work("aten::never_heard_of_", [spec(8, 8)], [spec(8)], in_place=True).family == "elementwise"


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ENCODER_WEIGHTS = 16 * 48 + 16 * 16 + 2 * 16 * 32
#: A layer, the shape of its batch, one of its ops, and what is known of it in training (the encoder: in inference).
LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...], str, dict[str, Any]]] = [
    # Convolutions: 2 x batch x positions x output channels x (input channels / groups) x kernel.
    (lambda: nn.Conv1d(3, 8, 5), (2, 3, 20), "convolution", {"flops": 7680, "one_d": 1, "ragged": 1,
     "bytes": 4 * (120 + 256 + 128), "x activations": 120 + 256}),
    (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 6, 7), "convolution", {"flops": 2 * 84 * 8 * 27, "one_d": 0}),
    (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), "convolution", {"flops": 2 * 16 * 8 * 36}),
    (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), "convolution", {"flops": 2 * 64 * 8 * 27, "three_d": 1}),
    (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 10, 10), "convolution", {"flops": 2 * 128 * 16 * 18,
     "label": "aten::convolution", "groups": 4, "in_channels": 2, "x filling_flops": 0}),
    (lambda: nn.Conv2d(8, 8, 3, groups=8), (1, 8, 7, 7), "convolution", {"label": "aten::convolution/depthwise",
     "flops": 2 * 25 * 8 * 9}),
    (lambda: nn.Conv2d(8, 8, 3, groups=8, dilation=2), (1, 8, 7, 7), "convolution_backward", {"dilated": 1,
     "label": "aten::convolution_backward/dilated_depthwise"}),
    (lambda: nn.Conv2d(8, 8, 1, groups=8, dilation=2), (1, 8, 7, 7), "convolution", {
     "label": "aten::convolution/depthwise"}),
    # Transposed, every *input* position meets every kernel element.
    (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 5), "convolution", {"flops": 2 * 50 * 48 * 9,
     "transposed": 1}),
    # 20 channels are filled up to 32; the three of the image are read as they lie.
    (lambda: nn.Conv2d(3, 20, 3, padding=1), (1, 3, 4, 4), "convolution", {"x unfolded_bytes": 4 * 16 * 27,
     "x filling_flops": 2.0 * 16 * 3 * 12 * 9}),
    (lambda: nn.Conv2d(32, 48, 3), (1, 32, 4, 4), "convolution", {"x filling_flops": 0, "ragged": 0}),
    # Only the weight's gradient is asked for: as much arithmetic as forward.
    (lambda: nn.Conv2d(3, 16, 1), (1, 3, 4, 4), "convolution_backward", {"flops": 1536, "to_input": 0,
     "x filling_flops": 0}),
    (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 16, 1)), (1, 48), "convolution",
     {"flops": 1536}),
    # Attention is two products forward and five backward.
    (Attend, (3, 5, 8), "scaled_dot_product_attention", {"flops": 2 * 2 * 6 * 25 * 4, "causal": 1, "batch": 6}),
    (Attend, (3, 5, 8), "scaled_dot_product_attention_backward", {"flops": 5 * 2 * 6 * 25 * 4}),
    (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), (3, 7, 16),
     "_transformer_encoder_layer_fwd", {"tokens": 21, "heads": 4, "flops": 42 * ENCODER_WEIGHTS + 4 * 21 * 7 * 16}),
    # Recurrent layers: 2 x rows x weights, twice that for the gradient.
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm", {"flops": 24 * 28 * 12, "hidden": 7, "x left_over": 0}),
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm_backward", {"flops": 48 * 28 * 12, "backward": 1}),
    (lambda: nn.GRU(5, 7, bidirectional=True), (3, 4, 5), "gru", {"flops": 24 * 2 * 21 * 12, "stacked": 2}),
    (lambda: nn.GRU(5, 40, 2), (3, 4, 5), "gru", {"length": 3, "batch": 4, "input": 5, "x steps": 6, "inside": 48,
     "x gated": 6 * 160, "x streamed_bytes": 12 * 120 * 125, "x padding_flops": 24.0 * 120 * 125 * 3,
     "x width_padding_flops": 24.0 * 120 * 125 * 0.2, "x left_over": 6 * 32}),
    (lambda: nn.GRU(5, 40), (3, 4, 5), "gru_backward", {"x left_over": 0}),  # takes no exponentials
    (lambda: nn.RNN(5, 40), (3, 4, 5), "rnn_tanh", {"x left_over": 0}),  # has no gates
    # Cells, also where the batch makes the input look like a weight (gates x hidden rows).
    *((lambda: nn.LSTMCell(5, 7), (n, 5), "lstm_cell", {"flops": 2 * n * 28 * 12, "length": 1}) for n in (4, 28)),
    *((lambda: nn.GRUCell(5, 7), (n, 5), "gru_cell_backward", {"flops": 4 * n * 21 * 12}) for n in (7, 21)),
    (lambda: nn.RNNCell(5, 7), (4, 5), "rnn_tanh_cell", {"flops": 8 * 7 * 12, "stacked": 1}),
    # A gradient walks the same windows as its forward.
    *((lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(3, 2)), (4, 1, 9, 9), f"max_pool2d_with_indices{end}",
       {"family": "pooling", "flops": 648, "pooled": 128, "x compared": 648.0}) for end in ("", "_backward")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=lambda i: f"{LAYERS[i][2]}-{i}")
def test_an_op_of_a_layer_is_described_by(number: int) -> None:
    build, shape, op, expected = LAYERS[number]
    model = build()
    check(traced(model, f"aten::{op}", shape, mode="train" if model.training else "infer"), expected)


def test_a_convolution_in_the_middle_costs_two_gradients_and_fills_up_a_narrow_image() -> None:
    step = trace(make_workload(nn.Sequential(nn.Conv2d(16, 3, 1), nn.Conv2d(3, 16, 1)), (1, 16, 4, 4), mode="train"))
    both, weight = [describe(c, HERE) for c in step.calls if c.op == "aten::convolution_backward"]
    one = 2 * 16 * 16 * 3  # FLOPs of each gradient
    check(both, {"to_input": 1, "flops": 2 * one, "x filling_flops": 2.0 * one * (16 / 3 - 1)})
    check(weight, {"to_input": 0, "flops": one, "x filling_flops": one * (16 / 3 - 1)})


A = torch.zeros(100, 8, 16)
IMAGE = torch.zeros(2, 3, 5, 7)
LAST = IMAGE.to(memory_format=torch.channels_last)
PATCHES = IMAGE.unfold(2, 3, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5)


@pytest.mark.parametrize(
    ("written", "read", "length", "block", "strided"),
    [
        (A + A, (A, A), 12_800, 12_800, False),
        (A * A[..., :1], (A, A[..., :1]), 16, 12_800, False),
        (A + A[0], (A, A[0]), 128, 12_800, False),
        (A.transpose(1, 2) * 2, (A.transpose(1, 2),), 12_800, 12_800, False),
        (A.transpose(1, 2).contiguous(), (A.transpose(1, 2),), 8, 128, True),
        (A[..., ::2] * 2, (A[..., ::2],), 6_400, 6_400, True),
        (A[..., :8].contiguous(), (A[..., :8],), 8, 6_400, False),
        (torch.cat([A, A], -1), (A, A), 16, 12_800, False),
        (torch.cat([A, A], 0), (A, A), 12_800, 12_800, False),
        (torch.zeros(8), (torch.zeros(2), torch.zeros(6)), 2, 2, False),
        (PATCHES.contiguous(), (PATCHES,), 2, 6, False),
        (F.pad(IMAGE, (1, 1, 1, 1)), (IMAGE,), 7, 35, False),
        (LAST + 1, (LAST,), 210, 210, False),
        (torch.zeros(()), (), 1, 1, False),
        (torch.zeros(0, 4), (torch.zeros(0, 4),), 1, 1, False),
        (A, (torch.zeros(3, 100, 8, 16),), 12_800, 12_800, False),  # of other dimensions: passed over
    ],
)  # fmt: skip
def test_the_loop_is_as_long_as_all_operands_are_walked_alike(
    written: Tensor, read: tuple[Tensor, ...], length: int, block: int, strided: bool
) -> None:
    assert innermost(spec_of(written), [spec_of(t) for t in read]) == Loop(length, block, strided)


@pytest.mark.parametrize(
    ("op", "source", "threads", "cores"),
    [
        ("relu", (32768,), 8, 1), ("relu", (32769,), 8, 2), ("relu", (10**7,), 8, 8), ("relu", (10**7,), 1, 1),
        ("exp", (2048,), 8, 1), ("exp", (2049,), 8, 2), ("gelu", (16384,), 8, 1), ("gelu", (16385,), 8, 8),
        ("_softmax", (3, 2048), 8, 3), ("native_layer_norm", (3, 500), 8, 3),
    ],
)  # fmt: skip
def test_a_loop_is_shared_by_as_many_cores_as_it_has_grains(
    op: str, source: tuple[int, ...], threads: int, cores: int
) -> None:
    inputs = [spec(*source), *([spec(source[-1])] if "norm" in op else [])]
    found = work(f"aten::{op}", inputs, [spec(*source)])
    shares = {"x core_flops": found.flops / cores, "x core_bytes": found.bytes / cores, "x core_shared": int(cores > 1)}
    check(found, shares, threads)


def test_channels_and_the_gates_of_one_time_step_are_shared() -> None:
    channels = work("aten::native_batch_norm", [spec(64, 2, 9), spec(2)], [spec(64, 2, 9)])
    check(channels, {"x core_flops": channels.flops / 2}, 8)
    for batch, cores in ((256, 1), (257, 2)):
        weights = [spec(384, 12), spec(384, 128)]
        gru = work("aten::gru", [spec(30, batch, 12), *weights], [spec(30, batch, 128)], 30)
        check(gru, {"x core_gated": 30 * batch * 128 / cores, "x core_shared": 30 if cores > 1 else 0}, 4)
        assert "x core_flops" not in facts(gru, 4)  # products share their work themselves


def reduced(source: tuple[int, ...], result: tuple[int, ...], threads: int = 1, op: str = "sum") -> dict[str, Any]:
    return facts(work(f"aten::{op}", [spec(*source)], [spec(*result)]), threads)


@pytest.mark.parametrize(
    ("columns", "turns"), [(3, 3), (4, 1), (7, 4), (8, 1), (10, 3), (20, 6), (31, 10), (32, 1), (33, 2), (96, 3)]
)
def test_columns_left_over_are_summed_one_by_one(columns: int, turns: int) -> None:
    assert reduced((1000, columns), (columns,))["x column_fetches"] == 1000 * turns
    assert reduced((1000, columns), (1000,))["x column_fetches"] == 0


def test_cores_share_columns_in_bundles_and_variances_one_by_one() -> None:
    # 100 columns: 32 for the first core, 68 for the second, the last four of them one by one.
    assert [reduced((1000, 100), (100,), n)["x column_fetches"] for n in (1, 2)] == [7000, 6000]
    assert [reduced((1000, 128), (128,), n)["x column_fetches"] for n in (1, 2, 4)] == [4000, 2000, 1000]
    assert reduced((100, 128), (128,), 2)["x column_fetches"] == 400  # too small to be shared
    for op, cores in (("sum", (1, 1, 2, 3)), ("std", (8, 8, 8, 8))):
        found = [reduced((40_000, n), (n,), 8, op) for n in (20, 63, 64, 96)]
        assert [each["flops"] / each["x core_additions"] for each in found] == list(cores)
    assert reduced((65_536, 20), (), 99)["x core_additions"] == 32_768
    # 20 columns take six turns, each of which fetches a line of every row of 80 bytes where no cache holds it.
    small, large = (2 << 20) // 80 // 2, (2 << 20) // 80 * 4
    assert [reduced((n, 20), (20,))["x column_refetches"] for n in (small, large)] == [0, large * (6 * 64 - 80)]
    assert reduced((large, 32), (32,))["x column_refetches"] == 0  # one turn is enough


def test_profiles_of_before_find_the_amounts_they_were_fitted_to() -> None:
    def earlier(found: Work) -> dict[str, float]:
        return FAMILIES[found.family].earlier(found, 2)

    relu = work("aten::relu", [spec(1 << 17)], [spec(1 << 17)])
    assert earlier(relu) == {"chunk_flops": 32768, "chunk_bytes": 8 * 32768}
    sums = earlier(work("aten::sum", [spec(40_000, 20)], [spec(20)]))
    assert (sums["core_flops"], sums["column_loads"]) == (800_000, 40_000 * 6)
    image = traced(nn.Conv2d(3, 16, 1), "aten::convolution", (1, 3, 4, 4))
    assert earlier(image) == {"padding_flops": pytest.approx(1536 * (16 / 3 - 1))}


# --- updates of parameters ----------------------------------------------------------------------------------------


def update(name: str, tensors: int = 1, **settings: object) -> Work:
    call = OpCall(f"optimizer::{name}", (spec(1000),), (), tuple(settings.items()), phase="optimizer")
    return describe(call, Context(footprint_bytes=0, recording=True, updates=tensors))


def test_an_update_moves_its_tensors_and_shares_what_a_step_does_once() -> None:
    adam = update("Adam", 4, fused=True)
    check(adam, {"bytes": 28_000, "flops": 12_000, "x step_share": 0.25, "fused": 1, "inside": 12})
    check(update("SGD", momentum=0.9), {"bytes": 12_000, "momentum": 1, "weight_decay": 0})


def test_on_an_accelerator_it_is_a_few_kernels_for_all_tensors() -> None:
    assert launches(update("Adam", 100)) == pytest.approx(7 / 100)
    assert launches(update("Adam", 1000, fused=True)) == pytest.approx(5 / 1000)  # more than one launch takes
    together, fused = on_accelerator(update("Adam", 9)), on_accelerator(update("Adam", 9, fused=True))
    assert (together.op, fused.op) == ("optimizer::Adam.foreach", "optimizer::Adam.fused")
    assert (together.bytes, fused.bytes) == (pytest.approx(18 * 4000), 7 * 4000)  # intermediates are written and read


class Counted(TorchDispatchMode):
    """Counts the ops over lists of tensors, and how many times all of those tensors are read and written."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.tensors, self.ops, self.passes = tensors, 0, 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        read = {t.data_ptr() for t in leaves((args, kwargs)) if t.numel() > 1}
        written = {t.data_ptr() for t in leaves(result if result is not None else args[0]) if t.numel() > 1}
        if func._overloadpacket.__name__.startswith("_foreach") and read:
            self.ops += 1
            self.passes += len(read) / self.tensors + len(written) / self.tensors
        return result


def leaves(nest: object) -> list[Tensor]:
    if isinstance(nest, Tensor):
        return [nest]
    items = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, (list, tuple)) else ()
    return [leaf for item in items for leaf in leaves(item)]


@pytest.mark.parametrize(("name", "settings"), [
    *((name.partition("::")[2], {}) for name in parameter_updates.KNOWN),
    ("SGD", {"momentum": 0.9}), ("SGD", {"weight_decay": 0.1}), ("Adam", {"weight_decay": 0.1}),
])  # fmt: skip
def test_the_table_of_updates_is_what_torch_runs(name: str, settings: dict[str, float]) -> None:
    parameters = [nn.Parameter(torch.randn(64)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=1e-3, foreach=True, **settings)
    for _ in range(8):  # the first steps of some differ
        for parameter in parameters:
            parameter.grad = torch.randn(64)
        with Counted(len(parameters)) as counted:
            optimizer.step()
    known = update(name, **settings)
    assert counted.ops == pytest.approx(launches(known))
    assert round(counted.passes) == round(on_accelerator(known).bytes / 4000)


# --- as an accelerator's kernels are told apart -------------------------------------------------------------------


def test_operands_that_select_no_other_kernel_make_no_other_op_on_an_accelerator() -> None:
    rows = numbers(6)
    for op, inputs, args, expected in (
        ("mul", [X], (0.5,), "mul"), ("mul", [X, MASK], (), "mul"), ("sum", [MASK], (), "sum"),
        ("native_batch_norm", [X, spec(30)], (True,), "native_batch_norm"), ("index", [X, MASK], (), "index.mask"),
        ("index_put", [X, rows, X], (True,), "index_put.accumulate"),
        ("index_put", [X, rows, X], (False,), "index_put"),
    ):  # fmt: skip
        assert known_labels(on_accelerator(work(f"aten::{op}", inputs, [X], *args)))[0] == f"aten::{expected}"


@pytest.mark.parametrize("family", FAMILIES)
def test_where_an_op_stands_among_a_cpus_caches_is_no_feature_of_an_accelerators(family: str) -> None:
    names = feature_names(family)
    assert len(set(names)) == len(names)
    sizes, flags = len(FAMILIES[family].sizes) + len(CONTEXT_SIZES), len(FAMILIES[family].flags) + len(CONTEXT_FLAGS)
    one = Work(family, "aten::op.number", "float32+bool", 1e6, 1e6, (64.0,) * sizes, (1.0,) * flags)
    seen = on_accelerator(one)
    zero = {name for name, value in zip(names, (*seen.sizes, *seen.flags), strict=True) if value == 0.0}
    assert zero == {"kinds", "previous", "reuse_distance", "kept", "recording", "evicted", "first"}
    assert on_accelerator(seen) == seen


@pytest.mark.parametrize(("dtype", "width", "masked", "backend"), [
    ("bfloat16", 64, False, "flash"), ("float16", 264, False, "efficient"), ("bfloat16", 64, True, "efficient"),
    ("float32", 64, True, "efficient"), ("float32", 30, False, "math"), ("bfloat16", 60, True, "math"),
    ("float64", 64, False, "math"),
])  # fmt: skip
def test_attention_is_told_apart_by_what_runs_it(dtype: str, width: int, masked: bool, backend: str) -> None:
    q = spec(2, 4, 16, width, dtype=dtype)
    op = "aten::scaled_dot_product_attention"
    found = on_accelerator(work(op, [q, q, q, *([spec(16, 16, dtype=dtype)] if masked else [])], [q], False))
    assert found.op == f"{op}.{backend}"


def test_a_small_recurrent_layer_is_a_few_kernels_and_a_large_one_two_for_every_time_step() -> None:
    """As in the calibrations of an H100 and an H200 (calibration/records)."""
    small = traced(nn.LSTM(8, 128, num_layers=4), "aten::lstm", (64, 32, 8), mode="infer")
    assert launches(small) == pytest.approx(11, rel=0.2)
    large = traced(nn.LSTM(89, 512, num_layers=2), "aten::lstm", (17, 21, 89), mode="infer")
    assert launches(large) == pytest.approx(78, rel=0.1)
    wide = traced(nn.GRU(20, 256), "aten::gru", (35, 152, 20), mode="infer")
    assert launches(wide) == pytest.approx(71, rel=0.1)


# --- where an op stands in its step -------------------------------------------------------------------------------


def step_of(*calls: tuple[str, int, str], mode: str = "infer", **totals: Any) -> list[dict[str, Any]]:
    """What is known of each call of a step, given names, numbers of elements and phases."""
    found = tuple(
        OpCall(f"aten::{op}", (spec(n),), (spec(n),), view=op == "view", phase=phase)  # type: ignore[arg-type]
        for op, n, phase in calls
    )
    return [facts(one) for one in describe_step(Trace(found, mode, (), (), (), (), **totals))]  # type: ignore[arg-type]


def test_an_op_knows_what_ran_since_its_own_last_call_and_steps_follow_each_other() -> None:
    calls = ("relu", 4), ("relu", 1 << 20), ("view", 1 << 20), ("exp", 4)
    found = step_of(*((op, n, "forward") for op, n in calls))
    assert [each["previous"] for each in found] == [32, 32, 8 << 20, 8 << 20]  # a view leaves what was before it
    assert [each["first"] for each in found] == [1, 0, 1, 1]
    assert [each["reuse_distance"] for each in found] == [32, 0, 8 << 20, 8 << 20]
    assert [each["x reuse_distance"] for each in found] == [0.0, 0.0, pytest.approx(0.9), pytest.approx(0.9)]
    assert {each["kinds"] for each in found} == {3}


def test_what_only_forward_ops_of_a_training_step_have() -> None:
    calls = ("relu", 4, "forward"), ("tanh", 4, "backward")
    forward, backward = step_of(*calls, mode="train", python_calls=40, evicted_calls=10.0, peak_activation_bytes=64)
    assert (forward["recording"], forward["x evicted"], forward["footprint"]) == (1, 0.25, 64)
    assert (backward["recording"], backward["x evicted"], backward["footprint"]) == (0, 0, 64)
    assert step_of(calls[0])[0]["recording"] == 0
    kept = work("aten::relu", [spec(8, stride=(0,))], [spec(8)], kept_bytes=32)
    check(kept, {"kept": 1, "repeated": 1, "footprint": 1000})


def test_a_step_is_described_once_and_equal_work_is_one_object() -> None:
    step = Trace((OpCall("aten::relu", (spec(8),), (spec(8),)),) * 5, "infer", (), (), (), ())
    first, *rest = describe_step(step)
    assert describe_step(step) is describe_step(step)
    assert len({id(one) for one in rest}) == 1
    assert first != rest[0]
    larger = replace(step, calls=(OpCall("aten::relu", (spec(16),), (spec(16),)),))
    assert describe_step(larger)[0].bytes == 128


def test_what_ships_knows_all_transforms() -> None:
    labels = {op_label(work(f"aten::{op}", *calls)) for op, calls in (
        ("_fft_r2c", ([X], [COMPLEX])), ("_fft_c2r", ([COMPLEX], [X])), ("_fft_c2c", ([COMPLEX], [COMPLEX])),
    )}  # fmt: skip
    for name in shipped():
        assert all(labels <= set(fit.families["fourier"].ops) for fit in load(name, samples=False).fits), name
