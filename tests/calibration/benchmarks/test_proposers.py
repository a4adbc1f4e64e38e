"""Everything that may be drawn builds, traces, runs, and stays within its limit; and the same is drawn every time."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Limit
from placer.calibration.measuring.step import Step, make_optimizer
from placer.pricing.work import Context, describe
from placer.tracing import trace_here
from placer.workload import make_workload

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)
#: A tenth of that, for probes that run here.
SMALL = Limit(flops=1e8, bytes=1e7)
PROBES = 15
#: Of these so many are built and run.
RUN = 6
#: Checksum of the names of the first networks: records of networks that no fit saw rest on these draws.
DRAWN = 0xB07C10C9


class OnNoDevice(TorchFunctionMode):
    """Notes every tensor that is made without being told on which device, single numbers aside."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _device._device_constructors() and (kwargs or {}).get("device") is None and result.dim() > 0:
            self.made.append(func.__name__)
        return result


@pytest.mark.parametrize("family", PROPOSERS)
def test_probes_build_trace_and_run_on_one_device(family: str) -> None:
    torch.set_num_threads(1)
    random = Random(f"probe {family}")
    too_large = 0
    for _ in range(RUN):
        probe = PROPOSERS[family][0](random, SMALL)
        assert probe.family == family
        module, args = probe.build(), probe.example()
        module.train(probe.mode == "train")
        workload = make_workload(
            module, batch=args, mode=probe.mode, optimizer=probe.optimizer or "sgd", loss=probe.loss, data="device"
        )
        traced = trace_here(workload)
        forward = [describe(c, Context.of(traced)) for c in traced.calls if c.phase == "forward"]
        assert forward, probe.name
        # The proposals' own counts are rough, and a step whose smallest draw is over the limit is still measured.
        too_large += sum(work.flops for work in forward) > 3 * SMALL.flops
        step = Step(workload, "cpu", make_optimizer(module, probe.optimizer) if probe.optimizer else None)
        step()
        with OnNoDevice() as mode:
            step()
        assert not mode.made, probe.name
    assert too_large <= RUN // 3


def test_the_same_networks_are_drawn_as_ever() -> None:
    random = Random("golden network")
    names = [PROPOSERS["network"][0](random, LIMIT).name for _ in range(PROBES)]
    assert zlib.crc32("\n".join(names).encode()) == DRAWN
