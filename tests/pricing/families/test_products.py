"""What products, convolutions, attention, recurrent layers, factorisations and transforms are described by."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from described import HERE, feature, spec, traced, work
from torch import Tensor, nn

from placer.pricing.describe import amounts, describe, op_label, ops_inside
from placer.pricing.families.products import CONVOLUTION
from placer.profile import load, shipped
from placer.tracing import trace
from placer.workload import make_workload


def test_addmm_counts_the_product_and_moves_every_operand() -> None:
    found = work("aten::addmm", [spec(7), spec(3, 5), spec(5, 7)], [spec(3, 7)])
    assert (found.family, found.flops) == ("matmul", 2 * 3 * 5 * 7)
    assert found.bytes == 4 * (7 + 15 + 35 + 21)
    assert found.sizes[:4] == (1, 3, 7, 5)


def test_bmm_counts_the_batch_and_sees_transposed_operands() -> None:
    found = work("aten::bmm", [spec(4, 2, 3), spec(4, 3, 5, stride=(15, 1, 3))], [spec(4, 2, 5)])
    assert found.flops == 2 * 4 * 2 * 3 * 5
    assert (feature(found, "a_transposed"), feature(found, "b_transposed")) == (0, 1)


def test_a_matrix_vector_product() -> None:
    found = work("aten::mv", [spec(6, 8), spec(8)], [spec(6)])
    assert (found.flops, found.bytes) == (2 * 6 * 8, 4 * (48 + 8 + 6))


def test_what_a_product_is_made_of() -> None:
    found = work("aten::bmm", [spec(3, 20, 40), spec(3, 40, 50)], [spec(3, 20, 50)])
    assert found.sizes[:8] == (3, 20, 50, 40, 3 * 20 * 40, 3 * 40 * 50, 3 * 20 * 50, 20)
    made = amounts(found)
    assert made["padding_flops"] == pytest.approx(2 * 3 * 40 * (32 * 64 - 20 * 50))  # whole tiles of 16 x 16
    assert (made["rows"], made["depth"], made["further"]) == (60, 0, 2)
    weight = work("aten::mm", [spec(20, 1000, stride=(1, 20)), spec(1000, 30)], [spec(20, 30)])
    assert (amounts(weight)["depth"], amounts(weight)["further"]) == (1000, 0)


def test_products_with_one_row_or_column_or_operand_of_one_dimension() -> None:
    row = work("aten::mm", [spec(1, 8), spec(8, 5)], [spec(1, 5)])
    column = work("aten::mm", [spec(6, 8), spec(8, 1)], [spec(6, 1)])
    dot = work("aten::dot", [spec(8), spec(8)], [spec()])
    assert [(feature(w, "row"), feature(w, "column")) for w in (row, column, dot)] == [(1, 0), (0, 1), (1, 1)]
    assert (dot.flops, dot.sizes[:4]) == (16, (1, 1, 1, 8))
    assert feature(work("aten::mm", [spec(4, 1, stride=(1, 4)), spec(1, 4)], [spec(4, 4)]), "a_transposed") == 0

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
    (first,) = [
        describe(c, HERE)
        for c in trace(make_workload(nn.Conv2d(3, 16, 1), (1, 3, 4, 4), mode="train")).calls
        if c.op == "aten::convolution_backward"
    ]
    assert amounts(first)["filling_flops"] == 0  # an image of few channels is read as it lies


def test_channels_of_groups_are_not_filled_up() -> None:
    found = traced(nn.Conv2d(6, 6, 3, groups=2), "aten::convolution", (2, 6, 5, 5), mode="infer")
    assert amounts(found)["filling_flops"] == 0
    assert amounts(found)["unfolded_bytes"] == 4 * 2 * 6 * 9 * 9
    names = ("batch", "in_channels", "out_channels", "groups", "kernel", "positions", "input_positions", "weights")
    assert [feature(found, name) for name in names] == [2, 3, 3, 2, 9, 9, 25, 6 * 3 * 9]


@pytest.mark.parametrize(
    ("layer", "shape", "flags"),
    [
        (nn.Conv1d(2, 4, 3), (1, 2, 8), {"one_d"}),
        (nn.Conv2d(2, 4, 3), (1, 2, 8, 8), set()),
        (nn.Conv3d(2, 4, 3), (1, 2, 8, 8, 8), {"three_d"}),
        (nn.Conv2d(2, 4, 3, dilation=(1, 2)), (1, 2, 8, 8), {"dilated"}),
        (nn.Conv2d(2, 4, 3, stride=2, padding=1), (1, 2, 8, 8), set()),
        (nn.ConvTranspose2d(2, 4, 3), (1, 2, 8, 8), {"transposed"}),
    ],
)
def test_what_kind_of_convolution_it_is(layer: nn.Module, shape: tuple[int, ...], flags: set[str]) -> None:
    names = ("one_d", "three_d", "transposed", "strided", "dilated")
    for op in ("aten::convolution", "aten::convolution_backward"):
        found = traced(layer, op, shape)
        assert {name for name in names if feature(found, name)} == flags


def test_an_image_whose_channels_lie_side_by_side_is_strided() -> None:
    image = torch.zeros(1, 2, 8, 8).to(memory_format=torch.channels_last)
    assert feature(traced(nn.Conv2d(2, 4, 3), "aten::convolution", example=(image,), mode="infer"), "strided") == 1


@pytest.mark.parametrize(
    ("layer", "variant"),
    [
        (nn.Conv2d(1, 8, 3), ""), (nn.Conv2d(8, 8, 3, groups=4), ""), (nn.Conv2d(8, 16, 3, groups=8), "depthwise"),
        (nn.Conv2d(8, 8, 3, groups=8, dilation=2), "dilated_depthwise"),
        (nn.Conv2d(8, 8, 1, groups=8, dilation=2), "depthwise"),
    ],
)  # fmt: skip
def test_only_groups_of_one_channel_are_depthwise(layer: nn.Conv2d, variant: str) -> None:
    found = traced(layer, "aten::convolution", (1, layer.in_channels, 8, 8), mode="infer")
    assert CONVOLUTION.variant(found) == variant


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


def test_attention_with_dropout_has_no_fused_kernel() -> None:
    q = spec(2, 4, 16, 8)
    fused = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.0, False)
    plain = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.1, False)
    assert feature(fused, "dropout") == 0
    assert amounts(plain)["dropped_scores"] == 2 * 4 * 16 * 16


def test_keys_may_be_more_than_queries_and_values_narrower() -> None:
    q, k, v = spec(2, 4, 5, 8), spec(2, 4, 7, 8), spec(2, 4, 7, 6)
    found = work("aten::scaled_dot_product_attention", [q, k, v], [spec(2, 4, 5, 6)], False, False, 0.0, False)
    assert found.sizes[:4] == (8, 5, 7, 8)
    assert found.flops == 2 * 8 * 5 * 7 * (8 + 6)
    assert (amounts(found)["scores"], amounts(found)["rows"], amounts(found)["dropped_scores"]) == (8 * 5 * 7, 8, 0)
    heads_inside = [spec(8, *t.shape[2:]) for t in (q, k, v)]
    assert work("aten::scaled_dot_product_attention", heads_inside, [spec(8, 5, 6)], False).flops == found.flops
    masked = work("aten::scaled_dot_product_attention", [q, k, v, spec(5, 7)], [spec(2, 4, 5, 6)], False)
    assert (feature(found, "masked"), feature(masked, "masked")) == (0, 1)


def test_the_fused_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    found = traced(layer, "aten::_transformer_encoder_layer_fwd", example=(torch.randn(3, 7, 16),), mode="infer")
    weights = 16 * 48 + 16 * 16 + 2 * 16 * 32
    assert found.family == "encoder"
    assert found.sizes[:5] == (21, 7, 16, weights, 4)
    assert found.flops == 2 * 21 * weights + 4 * 21 * 7 * 16


def test_its_attention_is_counted_apart_and_a_mask_is_no_weight() -> None:
    tokens, square = spec(3, 7, 16), spec(16, 16)
    found = work("aten::_native_multi_head_attention", [tokens, square, spec(7, 7)], [tokens], 16, 4)
    assert found.sizes[:5] == (21, 7, 16, 256, 4)
    assert (amounts(found)["scores"], amounts(found)["activations"]) == (21 * 7 * 4, 21 * 16)
    one = work("aten::_native_multi_head_attention", [spec(7, 16), square], [spec(7, 16)], 16, True)
    assert one.sizes[:5] == (7, 7, 16, 256, 1)

LAYERS: dict[str, tuple[Callable[[], nn.Module], str, int]] = {
    "lstm": (lambda: nn.LSTM(5, 7), "lstm", 28 * 5 + 28 * 7),
    "lstm, two layers": (lambda: nn.LSTM(5, 7, 2), "lstm", 28 * 5 + 28 * 7 + 2 * 28 * 7),
    "gru": (lambda: nn.GRU(5, 7), "gru", 21 * 5 + 21 * 7),
    "gru, both ways": (lambda: nn.GRU(5, 7, bidirectional=True), "gru", 2 * (21 * 5 + 21 * 7)),
    "rnn": (lambda: nn.RNN(5, 7), "rnn_tanh", 7 * 5 + 7 * 7),
}


CELLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lstm_cell": (lambda: nn.LSTMCell(5, 7), 28 * 12),
    "gru_cell": (lambda: nn.GRUCell(5, 7), 21 * 12),
    "rnn_tanh_cell": (lambda: nn.RNNCell(5, 7), 7 * 12),
}


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


def test_what_layers_are_made_of() -> None:
    """Two layers of 7, over 3 time steps of 4 sequences of 5."""
    found = traced(nn.GRU(5, 7, 2), "aten::gru", (3, 4, 5))
    weights = 21 * (5 + 7) + 21 * (7 + 7)
    assert found.sizes[:7] == (3, 4, 5, 7, 2, 4 * 7, weights)
    made = amounts(found)
    assert (made["steps"], made["gated"], made["streamed_bytes"]) == (6, 6 * 4 * 7, 4 * 3 * weights)
    assert made["padding_flops"] == pytest.approx(found.flops * (16 / 4 - 1))
    assert made["left_over"] == 6 * 4 * 7
    assert ops_inside(found) == 8 * 6
    cell = traced(nn.GRUCell(5, 7), "aten::gru_cell", (4, 5))
    assert (amounts(cell)["steps"], ops_inside(cell)) == (1, 8)


def test_a_factorisation_is_a_cube_of_each_matrix() -> None:
    found = work("aten::linalg_inv_ex", [spec(3, 8, 8)], [spec(3, 8, 8), spec(3)])
    assert (found.family, found.flops) == ("linear_algebra", 2 * 3 * 8**3)
    assert found.sizes[:4] == (3, 8, 8, 8)
    assert (amounts(found)["squares"], amounts(found)["matrices"]) == (3 * 64, 3)


def test_the_shorter_side_of_a_matrix_is_eliminated_and_vectors_do_not_count() -> None:
    found = work("aten::linalg_qr", [spec(100), spec(2, 6, 4)], [spec(2, 6, 4), spec(2, 4, 4)])
    assert found.sizes[:4] == (2, 6, 4, 4)
    assert found.flops == 2 * 2 * 6 * 4 * 4


def test_distances_are_between_all_pairs() -> None:
    a, b = spec(2, 5, 3), spec(2, 7, 3)
    found = work("aten::_cdist_forward", [a, b], [spec(2, 5, 7)], 2.0)
    assert found.sizes[:4] == (2, 5, 7, 3)
    assert found.flops == 2 * 2 * 5 * 7 * 3
    gradient = work("aten::_cdist_backward", [spec(2, 5, 7), a, b, spec(2, 5, 7)], [a], 2.0)
    assert (gradient.flops, gradient.sizes[:4]) == (found.flops, found.sizes[:4])


@pytest.mark.parametrize(("dims", "length"), [((1,), 30), ((0, 1), 180), ((), 1)])
def test_the_length_is_that_of_all_dimensions_transformed(dims: tuple[int, ...], length: int) -> None:
    found = work("aten::_fft_c2c", [spec(6, 30)], [spec(6, 30)], dims, 0, True)
    assert (found.family, found.sizes[:2]) == ("fourier", (180, length))
    assert found.flops == pytest.approx(5 * 180 * math.log2(2 + length))


def test_the_larger_side_of_a_real_transform_counts() -> None:
    found = work("aten::_fft_r2c", [spec(6, 30)], [spec(6, 16)], (1,), 0, True)
    assert found.sizes[:2] == (180, 30)
    assert feature(found, "strided") == 0
    assert feature(work("aten::_fft_r2c", [spec(6, 30, stride=(1, 6))], [spec(6, 16)], (0,)), "strided") == 1


def test_complex_operands_are_a_dtype_of_their_own_and_what_ships_knows_all_transforms() -> None:
    real, numbers = spec(6, 30), spec(6, 16, dtype="complex64")
    forward, back = work("aten::_fft_r2c", [real], [numbers], (1,)), work("aten::_fft_c2r", [numbers], [real], (1,))
    between, size = work("aten::_fft_c2c", [numbers], [numbers], (1,)), work("aten::abs", [numbers], [spec(6, 16)])
    assert [found.dtype for found in (forward, back, between, size)] == ["float32", *["complex64"] * 3]
    for name in shipped():
        for fit in load(name, samples=False).fits:
            assert {op_label(found) for found in (forward, back, between)} <= set(fit.families["fourier"].ops), name
