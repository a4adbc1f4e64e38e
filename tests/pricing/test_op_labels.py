"""The names that a fit knows ops by."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from priced import matmul
from torch import nn

from placer.pricing.describe import describe_step
from placer.pricing.kernels import SUFFIX
from placer.pricing.op_labels import op_label
from placer.tracing import trace
from placer.workload import make_workload


def test_another_dtype_is_another_op() -> None:
    assert op_label(matmul(4)) == "aten::mm"
    assert op_label(matmul(4, "bfloat16")) == "aten::mm:bfloat16"


@pytest.mark.parametrize(
    ("layer", "label"),
    [
        (nn.Conv2d(8, 16, 3), "aten::convolution"),
        (nn.Conv2d(8, 16, 3, groups=2), "aten::convolution"),
        (nn.Conv2d(8, 8, 3, groups=8), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 8, 3, groups=8, dilation=2), "aten::convolution/dilated_depthwise"),
        (nn.Conv2d(8, 8, 1, groups=8, dilation=2), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 16, 3, groups=8, dtype=torch.float64), "aten::convolution/depthwise:float64"),
    ],
)
def test_a_depthwise_convolution_is_an_op_of_its_own(layer: nn.Conv2d, label: str) -> None:
    image = torch.randn(2, 8, 6, 6, dtype=layer.weight.dtype)
    traced = trace(make_workload(layer, example=(image,), mode="train"))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found["aten::convolution"] == label
    assert found["aten::convolution_backward"] == label.replace("convolution", "convolution_backward")


@pytest.mark.parametrize(
    ("layer", "shape", "label"),
    [
        (nn.BatchNorm1d(8), (4, 8), "aten::native_batch_norm.rows"),
        (nn.BatchNorm1d(8), (4, 8, 1), "aten::native_batch_norm"),
        (nn.BatchNorm2d(8), (4, 8, 3, 3), "aten::native_batch_norm"),
        (nn.LayerNorm(8), (4, 8), "aten::native_layer_norm"),
    ],
)
def test_a_batch_norm_of_rows_is_an_op_of_its_own(layer: nn.Module, shape: tuple[int, ...], label: str) -> None:
    traced = trace(make_workload(layer, shape))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found[label.partition(SUFFIX)[0]] == label


@pytest.mark.parametrize(
    ("picked", "label"), [(lambda x: x > 0, "aten::index_put.mask"), (lambda x: x.argmax(0), "aten::index_put")]
)
def test_an_assignment_by_a_mask_is_an_op_of_its_own(
    picked: Callable[[torch.Tensor], torch.Tensor], label: str
) -> None:
    class Assigned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros_like(x)
            out[picked(x)] = 1.0
            return x * out

    traced = trace(make_workload(Assigned(), (3, 4), mode="infer"))
    assert label in {op_label(work) for work in describe_step(traced)}


def test_in_place_is_not_another_op() -> None:
    assert op_label(matmul(4, op="aten::add_")) == op_label(matmul(4, op="aten::add"))
