"""The innermost loops over real tensors, as torch would walk them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from placer.pricing.families.tensor_iterator import Loop, innermost
from placer.tracing import spec_of


def walked(written: Tensor, *read: Tensor) -> Loop:
    return innermost(spec_of(written), [spec_of(t) for t in read])


X = torch.zeros(100, 8, 16)
IMAGE = torch.zeros(2, 3, 5, 7)
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)
PATCHES = IMAGE.unfold(2, 3, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5)


@pytest.mark.parametrize(
    ("written", "read", "length", "block", "strided"),
    [
        (X + X, (X, X), 12_800, 12_800, False),
        (X * X[..., :1], (X, X[..., :1]), 16, 12_800, False),
        (X + X[0, 0], (X, X[0, 0]), 16, 12_800, False),
        (X + X[0], (X, X[0]), 128, 12_800, False),
        (X * 2, (X, torch.tensor(2.0)), 12_800, 12_800, False),
        (X.transpose(1, 2) * 2, (X.transpose(1, 2),), 12_800, 12_800, False),
        (X.transpose(1, 2).contiguous(), (X.transpose(1, 2),), 8, 128, True),
        (X[..., ::2] * 2, (X[..., ::2],), 6_400, 6_400, True),
        (X[..., :8].contiguous(), (X[..., :8],), 8, 6_400, False),
        (torch.cat([X, X], -1), (X, X), 16, 12_800, False),
        (torch.cat([X, X], 0), (X, X), 12_800, 12_800, False),
        (torch.zeros(8), (torch.zeros(2), torch.zeros(6)), 2, 2, False),
        (torch.zeros(7), (torch.zeros(1), torch.zeros(6)), 6, 6, False),
        (IMAGE.unfold(3, 3, 1).contiguous(), (IMAGE.unfold(3, 3, 1),), 3, 15, False),
        (PATCHES.contiguous(), (PATCHES,), 2, 6, False),
        (F.pad(IMAGE, (1, 1, 1, 1)), (IMAGE,), 7, 35, False),
        (CHANNELS_LAST + 1, (CHANNELS_LAST,), 210, 210, False),
        (torch.zeros(()), (), 1, 1, False),
        (torch.zeros(0, 4), (torch.zeros(0, 4),), 1, 1, False),
    ],
)  # fmt: skip
def test_the_loop_is_as_long_as_all_operands_are_walked_alike(
    written: Tensor, read: tuple[Tensor, ...], length: int, block: int, strided: bool
) -> None:
    assert walked(written, *read) == Loop(length, block, strided)


def test_an_operand_of_other_dimensions_is_passed_over() -> None:
    assert walked(X, torch.zeros(3, 100, 8, 16)) == Loop(12_800, 12_800, strided=False)
