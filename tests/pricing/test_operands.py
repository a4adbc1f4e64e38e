"""What operands say of a call, whatever its family."""

from __future__ import annotations

from described import spec, work


def test_an_operand_of_another_dtype_is_converted_first() -> None:
    """A product with a mask copies the mask into numbers; a zero-dimensional operand is converted in place."""
    assert work("aten::mul", [spec(4, 3), spec(3, dtype="bool")], [spec(4, 3)]).dtype == "float32+bool"
    assert work("aten::mul_", [spec(4, dtype="int64"), spec(4)], [spec(4)]).dtype == "float32+int64"
    filtered = [spec(4), spec(4, dtype="complex64")]
    for order in (filtered, filtered[::-1]):
        assert work("aten::mul", order, filtered[1:]).dtype == "complex64+float32"
    assert work("aten::add", [spec(4), spec(4, dtype="float64")], [spec(4, dtype="float64")]).dtype == "float64+float32"
    assert work("aten::mul", [spec(4), spec(dtype="float64")], [spec(4)]).dtype == "float32"
    assert work("aten::mul", [spec(4), spec(4)], [spec(4)]).dtype == "float32"
    assert work("aten::where", [spec(4, dtype="bool"), spec(4), spec(4)], [spec(4)]).dtype == "float32"
