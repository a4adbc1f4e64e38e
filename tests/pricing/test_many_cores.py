"""What cores that share an op take, by what one core takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from placer.calibration.benchmarks.probe import Apply
from placer.pricing import Context, CostModel, Work, describe
from placer.profile import Cores, load
from placer.profile.profile import Device
from placer.tracing import trace
from placer.workload import Workload

CORE = load("intel-xeon-avx512-2-core").fit("cpu", 1)
REGION = 7e-6


def works(function: Any, *operands: Tensor) -> list[Work]:
    module = Apply(function)
    traced = trace(Workload(module, (module,), operands, mode="infer"))
    context = Context.of(traced)
    return [describe(call, context) for call in traced.calls if not call.view]


def work(function: Any, *operands: Tensor) -> Work:
    (found,) = works(function, *operands)
    return found


def shared_by(threads: int, *, region: float = REGION, scaling: float = 1.0) -> Device:
    flops = CORE.rates["flops/float32"] * threads**scaling
    cores = Cores(CORE.rates, region, flops, CORE.rates["bytes_per_second"] * threads)
    return replace(CORE, threads=threads, cores=cores)


def seconds(of: Work, fit: Device) -> float:
    (found,), _, _ = CostModel(fit).price_works([of])
    return found


@pytest.mark.parametrize(
    "made",
    [
        lambda: work(torch.mm, torch.rand(1024, 1024), torch.rand(1024, 1024)),
        lambda: work(torch.bmm, torch.rand(64, 64, 64), torch.rand(64, 64, 64)),
        lambda: work(lambda x, w: F.conv2d(x, w), torch.rand(1, 64, 56, 56), torch.rand(64, 64, 3, 3)),
        lambda: work(lambda x, w: F.conv2d(x, w), torch.rand(32, 64, 28, 28), torch.rand(64, 64, 3, 3)),
        lambda: work(lambda x: F.max_pool2d(x, 2), torch.rand(16, 64, 56, 56)),
        lambda: work(lambda x: x.sum(0), torch.rand(4096, 1024)),
    ],
)
def test_large_ops_become_faster_with_every_core_but_no_faster_than_all_of_them(made: Any) -> None:
    of = made()
    times = [seconds(of, shared_by(threads)) for threads in (2, 4, 8, 16)]
    alone = seconds(of, CORE)
    assert [alone, *times] == sorted([alone, *times], reverse=True)
    assert alone / times[-1] < 32.0  # a share of the operands may fit a nearer cache
    assert seconds(of, shared_by(16, scaling=0.7)) > times[-1]


@pytest.mark.parametrize(
    "made",
    [
        lambda: work(lambda x: x.uniform_(), torch.empty(1 << 20)),
        lambda: work(torch.unique, torch.zeros(1 << 16, dtype=torch.long)),
    ],
)
def test_what_one_core_runs_costs_the_same_with_any_number(made: Any) -> None:
    of = made()
    assert seconds(of, shared_by(2)) == seconds(of, shared_by(64)) == pytest.approx(seconds(of, CORE))
