"""What holds of every account; the collection of what they reported is not part of the project."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from placer.calibration.lab.suite.accounts import Account, Host, accounts, hosts
from placer.calibration.lab.suite.accounts_dense import NETWORKS
from placer.calibration.measuring.step import make_optimizer
from placer.profile import find_gpu
from placer.tracing import trace

#: Accounts whose first step takes seconds.
SLOW = ("mxnet-2714-80fc", "jcjohnson-resnet-34")
POINTS = [(account, point) for account in accounts() for point in account.points]
#: Networks whose first step takes seconds for real, or that have no weights: these are traced only.
HEAVY = {"language model", "BERT", "ResNet", "VGG", "MobileNet", "wide", "heads", "product", "sum", "draw two"}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_accounts_and_points_are_there_once_with_known_hardware_and_networks() -> None:
    assert len({account.id for account in accounts()}) == len(accounts())
    assert len({(account.id, point.at) for account, point in POINTS}) == len(POINTS)
    for account, point in POINTS:
        assert find_gpu(point.gpu or account.gpu).float32_tflops > 0.0
        assert {point.cpu or account.cpu, point.gpu_host or account.cpu} <= set(hosts())
        assert {step.network for step in point.steps} <= set(NETWORKS)
        assert all(step.count > 0.0 for step in point.steps)
        for side in ("cpu", "gpu"):
            assert any(side in step.counted and not step.on_host for step in point.steps), (account.id, point.at)


@pytest.mark.parametrize("host", hosts().values(), ids=lambda host: host.name)
def test_a_host_is_a_cpu_of_the_catalog(host: Host) -> None:
    device = host.profile().fit("cpu", host.cores)
    assert (device.threads, device.estimated) == (host.cores, True)
    assert 0.3e-6 < device.rates["dispatch_seconds"] < 5e-6
    assert 2e10 < device.rates["flops/float32"] < 2e13
    assert 5e9 < device.rates["bytes_per_second"] < 5e11


#: Every eighth is tried each time, those aside that take seconds.
TRIED = [
    pytest.param(account, id=account.id, marks=[pytest.mark.soak] if number % 8 or account.id in SLOW else [])
    for number, account in enumerate(accounts())
]


@pytest.mark.parametrize("account", TRIED)
def test_the_first_point_is_traced_and_runs(account: Account) -> None:
    torch.manual_seed(0)
    for step in account.points[0].steps:
        workload = step.part().workload
        assert trace(workload, limit_seconds=200.0).calls
        if step.network in HEAVY:
            continue
        if workload.mode == "infer":
            with torch.no_grad():
                workload.model(*workload.args)
            continue
        (model,) = workload.modules
        loss: Any = workload.loss
        loss(model.train()(*workload.args)).backward()
        make_optimizer(model, step.optimizer).step()
        assert any(parameter.grad is not None for parameter in model.parameters())
        assert all(parameter.isfinite().all() for parameter in model.parameters())
