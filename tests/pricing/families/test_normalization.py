"""Normalizations."""

from __future__ import annotations

import pytest
import torch
from described import spec, work
from torch import nn

from placer.pricing.describe import amounts, describe_step
from placer.pricing.on_accelerator import launches
from placer.tracing import trace
from placer.workload import make_workload


@pytest.mark.skipif(
    not hasattr(torch.ops.aten, "_fused_rms_norm_backward"), reason="this torch has no kernel for rms_norm"
)
def test_rms_norm_is_one_kernel_on_cuda_and_its_parts_on_the_cpu() -> None:
    step = trace(make_workload(nn.RMSNorm(64), (32, 64), mode="train"))
    parts = [work for work in describe_step(step) if work.family != "optimizer"]
    whole = [work for work in describe_step(step.on("cuda")) if work.family == "normalization"]
    assert not [work for work in parts if work.family == "normalization"]
    assert [work.op for work in whole] == ["aten::_fused_rms_norm", "aten::_fused_rms_norm_backward"]
    assert [launches(work) for work in whole] == [1.0, 1.0]
    assert whole[0].bytes < sum(work.bytes for work in parts) / 3
    assert whole[0].sizes[:2] == (32 * 64, 64)


def test_rows_or_channels_are_shared_by_cores() -> None:
    rows = work("aten::native_layer_norm", [spec(6, 50), spec(50)], [spec(6, 50)])
    assert (rows.flops, rows.sizes[:2]) == (8 * 300, (300, 50))
    assert amounts(rows, 4)["core_flops"] == rows.flops / 4
    channels = work("aten::native_batch_norm", [spec(6, 2, 9), spec(2)], [spec(6, 2, 9)], True)
    assert amounts(channels, 4)["core_flops"] == channels.flops / 2
    nothing = work("aten::native_layer_norm", [spec(6, 0), spec(0)], [spec(6, 0)])
    assert amounts(nothing, 4)["core_flops"] == 0
    assert amounts(work("aten::native_layer_norm", [spec(5, 3)], [spec(5, 3)]), 99)["core_bytes"] == 2 * 4
