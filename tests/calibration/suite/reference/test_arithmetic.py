"""Passes written by hand against torch's own: the same values, the same gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from placer.calibration.suite.reference import from_scratch as arithmetic


def applied(passes: Any, *arguments: Any) -> Tensor:
    result: Tensor = passes.apply(*arguments)
    return result


def gradients(function: Any, *inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The result, and the gradients of a weighted sum of it (so that they differ from place to place)."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return out, torch.autograd.grad((out * weights).sum(), leaves)


def assert_same(ours: Any, torchs: Any, *inputs: Tensor) -> None:
    (out, grads), (expected, expected_grads) = gradients(ours, *inputs), gradients(torchs, *inputs)
    torch.testing.assert_close(out, expected)
    for found, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(found, wanted)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_convolution() -> None:
    assert_same(
        lambda x, w, b: applied(arithmetic.Convolution, x, w, b), F.conv2d,
        random(2, 3, 8, 7), random(4, 3, 3, 3), random(4),
    )  # fmt: skip


def test_affine() -> None:
    assert_same(
        lambda x, w, b: applied(arithmetic.Affine, x, w, b), lambda x, w, b: F.linear(x, w.T, b),
        random(5, 4), random(4, 3), random(3),
    )  # fmt: skip


def test_rectifier() -> None:
    assert_same(lambda x: applied(arithmetic.Rectifier, x), F.relu, random(3, 9))


def test_softmax_and_cross_entropy() -> None:
    targets = torch.eye(4, dtype=torch.float64)[torch.tensor([0, 3, 3])]
    logits = random(3, 4).requires_grad_()
    ours = applied(arithmetic.SoftmaxCrossEntropy, logits, targets)
    expected = F.cross_entropy(logits, targets)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)  # the logarithm is kept from 0 by 1e-7
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(expected, logits))


def test_dropout_scales_what_it_keeps_and_drops_the_same_gradients() -> None:
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    out = applied(arithmetic.Drop, x, 0.25)
    assert set(out.tolist()) == {0.0, 1.0 / 0.75}
    assert 0.6 < (out > 0).float().mean() < 0.9
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, out.detach())


@pytest.mark.parametrize("passes", [arithmetic.MaxPoolByIndex, arithmetic.MaxPoolByMask])
def test_max_pooling(passes: Any) -> None:
    assert_same(lambda x: applied(passes, x, 2), lambda x: F.max_pool2d(x, 2), random(2, 3, 6, 8))


def test_both_poolings_send_the_gradient_to_one_place_of_a_tie() -> None:
    ties = torch.zeros(2, 3, 4, 4)
    by_index, by_mask = (
        gradients(lambda x, passes=passes: applied(passes, x, 2), ties)[1][0]
        for passes in (arithmetic.MaxPoolByIndex, arithmetic.MaxPoolByMask)
    )
    torch.testing.assert_close(by_index, by_mask, rtol=0, atol=0)
    assert (by_index != 0).sum() == 2 * 3 * 2 * 2


def test_col2im_is_the_transpose_of_im2col() -> None:
    images, matrix = random(2, 3, 5, 6), random(2 * 3 * 4, 27)
    left = (arithmetic.im2col(images, 3) * matrix).sum()
    right = (images * arithmetic.col2im(matrix, images.shape, 3)).sum()
    torch.testing.assert_close(left, right)


def test_windows_and_back() -> None:
    images = random(2, 3, 6, 4)
    torch.testing.assert_close(
        arithmetic.from_windows(arithmetic.windows(images, 2), images.shape, 2), images, rtol=0, atol=0
    )
