"""What an op's operands and arguments say, and which kernel it runs in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from described import spec, work
from torch import Tensor, nn

from placer.pricing.work import kernel_of, op_of
from placer.tracing import trace
from placer.workload import make_workload


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


class Applied(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def kernels(function: Callable[[Tensor], Tensor]) -> list[str]:
    """Of the calls that work on a matrix."""
    return [kernel_of(call) for call in trace(make_workload(Applied(function), (8, 4), mode="infer")).calls]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * 0.5, "aten::mul.number"),
        (lambda x: 1.0 + x, "aten::add.number"),
        (lambda x: x.clone().div_(3), "aten::div_.number"),
        (lambda x: x * x, "aten::mul"),
        (lambda x: x * torch.ones(()), "aten::mul"),
        (lambda x: (x > 0).sum(0), "aten::sum.mask"),
        (lambda x: x.sum(0), "aten::sum"),
        (lambda x: x.clone().index_put_((x > 0,), torch.ones(())), "aten::index_put_.mask"),
        (lambda x: x[torch.tensor([0, 2])], "aten::index"),
        (lambda x: nn.functional.batch_norm(x, None, None, training=True), "aten::native_batch_norm.rows"),
    ],
)
def test_layouts_that_pick_another_kernel_have_names_of_their_own(
    function: Callable[[Tensor], Tensor], expected: str
) -> None:
    assert expected in kernels(function)
    same_op = [name for name in kernels(function) if op_of(name) == op_of(expected)]
    assert same_op == [expected]


def test_an_op_is_known_by_any_of_its_kernels() -> None:
    assert op_of("aten::mul.number") == op_of("aten::mul") == "aten::mul"
