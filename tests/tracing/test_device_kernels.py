"""What is one kernel on CUDA and several ops on the CPU has a trace for each."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from forwards import module
from torch import nn

from placer.tracing import Trace, trace
from placer.workload import make_workload

FUSED = hasattr(torch.ops.aten, "_fused_rms_norm_backward")


def norms(traced: Trace) -> Iterator[tuple[str, str]]:
    return ((c.op, c.phase) for c in traced.calls if "rms_norm" in c.op)


@pytest.mark.skipif(not FUSED, reason="this torch has no such kernel on any device")
def test_rms_norm_is_one_kernel_on_cuda() -> None:
    parts = OrderedDict(linear=nn.Linear(8, 8), norm=nn.RMSNorm(8))
    traced = trace(make_workload(nn.Sequential(parts), (3, 8), mode="train", optimizer="sgd"))
    assert not list(norms(traced))
    assert "aten::rsqrt" in {c.op for c in traced.calls}
    on_cuda = traced.on("cuda")
    assert list(norms(on_cuda)) == [
        ("aten::_fused_rms_norm", "forward"),
        ("aten::_fused_rms_norm_backward", "backward"),
    ]
    assert "aten::rsqrt" not in {c.op for c in on_cuda.calls}
    forward, backward = (c for c in on_cuda.calls if "rms_norm" in c.op)
    assert [t.shape for t in forward.inputs] == [(3, 8), (8,)]
    assert [t.shape for t in backward.outputs] == [(3, 8), (8,)]
    assert forward.layer == backward.layer == "norm"
    assert on_cuda.notes == traced.notes


def weight_of_another_dtype(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (8,), torch.ones(8, dtype=torch.bfloat16, device=x.device))


def channels_last(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x.expand(2, 4, 8, 8).contiguous(memory_format=torch.channels_last), (8,))


@pytest.mark.parametrize("forward", [weight_of_another_dtype, channels_last])
def test_where_torch_takes_it_apart_on_cuda_too_there_is_one_trace(forward: Callable[..., Any]) -> None:
    assert trace(make_workload(module(forward), (8, 8), mode="infer")).others == {}


def test_checks_of_linear_algebra_wait_for_the_device() -> None:
    solves = module(lambda self, a: torch.linalg.inv(a) @ torch.linalg.cholesky(a))
    traced = trace(make_workload(solves, (4, 4), mode="infer"))
    waits = Counter({c.op: c.syncs for c in traced.calls if c.syncs})
    assert waits == {"aten::_linalg_check_errors": 1}
    assert traced.syncs == 2 == sum(c.syncs for c in traced.calls)
