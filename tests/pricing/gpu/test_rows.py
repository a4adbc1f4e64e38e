"""Op calls of real steps as the rows that the device model prices."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from described import spec, work
from torch import Tensor, nn

from placer.pricing import describe_step
from placer.pricing.gpu.rows import COLUMNS, Row, label_of, rows_of
from placer.pricing.work import Work
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
