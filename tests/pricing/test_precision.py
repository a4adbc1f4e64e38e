"""What an accelerator computes in, as torch's switches stand: the same switches as before and since torch 2.9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from described import spec, work

from placer.pricing.floors import floor_amounts, peak
from placer.pricing.precision import allows_tf32, arithmetic

RATES = {"flops/float32": 1e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "bytes_per_second": 1e12}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    yield
    if hasattr(torch.backends, "fp32_precision"):
        torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"  # type: ignore
        torch.backends.cuda.matmul.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


PRODUCT, HALF_PRODUCT = (
    work("aten::mm", [spec(64, 32, dtype=dtype), spec(32, 16, dtype=dtype)], [spec(64, 16, dtype=dtype)])
    for dtype in ("float32", "bfloat16")
)
CONVOLUTION, DEPTHWISE = (
    work("aten::convolution", [spec(2, 8, 16, 16), spec(8, channels, 3, 3)], [spec(2, 8, 16, 16)])
    for channels in (8, 1)
)
HALF_SUM = work("aten::add", [spec(64, dtype="bfloat16")] * 2, [spec(64, dtype="bfloat16")])


def test_convolutions_run_in_tf32_unless_told_otherwise_and_products_do_not() -> None:
    assert [arithmetic(one) for one in (PRODUCT, CONVOLUTION, DEPTHWISE)] == ["float32", "tf32", "float32"]
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert [arithmetic(one) for one in (PRODUCT, CONVOLUTION, DEPTHWISE)] == ["tf32", "float32", "float32"]


def test_only_what_multiplies_matrices_runs_at_the_rate_of_half_precision() -> None:
    assert (arithmetic(HALF_PRODUCT), arithmetic(HALF_SUM)) == ("bfloat16", "float32")


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has one switch for each library")
def test_the_newer_switches_are_told_apart_where_torch_refuses_to_answer_the_older_ones() -> None:
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert [allows_tf32(switch) for switch in ("matmul", "conv", "rnn")] == [True, True, False]  # type: ignore[arg-type]


def test_an_accelerators_flops_count_by_the_peak_of_what_they_run_in() -> None:
    def counted(one: object) -> float:
        return floor_amounts(one, RATES, cpu=False)["flops"] / one.flops  # type: ignore

    assert counted(PRODUCT) == 1.0
    assert counted(HALF_PRODUCT) == pytest.approx(1 / 16)
    assert counted(CONVOLUTION) == pytest.approx(1 / 8)
    torch.backends.cudnn.allow_tf32 = False
    assert counted(CONVOLUTION) == 1.0
    assert floor_amounts(HALF_PRODUCT, RATES)["flops"] == HALF_PRODUCT.flops  # a CPU's are counted as they are
    assert peak(CONVOLUTION, {"flops/float32": 1e13}, cpu=False) == 1e13  # of a profile that knows no TF32
