"""Elementwise ops: one FLOP or a function for each element."""

from __future__ import annotations

from described import feature, spec, work


def test_elementwise_ops() -> None:
    found = work("aten::add", [spec(4, 8), spec(8)], [spec(4, 8)], 1)
    assert (found.family, found.flops, found.bytes) == ("elementwise", 32, 4 * (32 + 8 + 32))
    assert feature(found, "broadcast") == 1
    assert work("aten::tanh", [spec(32)], [spec(32)]).flops > found.flops
    assert feature(work("aten::mul", [spec(4, 8, stride=(1, 4))], [spec(4, 8)]), "strided") == 1


def test_a_broadcast_operand_is_stored_once() -> None:
    found = work("aten::mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)])
    assert found.bytes == 4 * (32 + 8 + 32)


def test_an_operand_of_another_dtype_is_converted_first() -> None:
    """A product with a mask copies the mask into numbers; a single number is converted where it stands."""
    assert work("aten::mul", [spec(4, 3), spec(3, dtype="bool")], [spec(4, 3)]).dtype == "float32+bool"
    assert work("aten::mul_", [spec(4, dtype="int64"), spec(4)], [spec(4)]).dtype == "float32+int64"
    assert work("aten::add", [spec(4), spec(4, dtype="float64")], [spec(4, dtype="float64")]).dtype == "float64+float32"
    assert work("aten::mul", [spec(4), spec(dtype="float64")], [spec(4)]).dtype == "float32"
    assert work("aten::mul", [spec(4), spec(4)], [spec(4)]).dtype == "float32"
    assert work("aten::where", [spec(4, dtype="bool"), spec(4), spec(4)], [spec(4)]).dtype == "float32"
