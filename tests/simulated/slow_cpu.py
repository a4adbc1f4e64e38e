"""A slow CPU: ops on host tensors take time on a virtual clock, one after another, without a queue."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simulated.clock import VirtualClock
from simulated.costs import kernel_seconds, tensors_in


class SlowCpu(TorchDispatchMode):
    """While active, every op that computes something is paid for: ``dispatch`` seconds, then arithmetic or traffic."""

    def __init__(
        self, clock: VirtualClock, *, dispatch: float = 5e-7, flops: float = 1e10, bytes_per_second: float = 1e10
    ) -> None:
        super().__init__()
        self.clock = clock
        self.dispatch = dispatch
        self.flops = flops
        self.bytes_per_second = bytes_per_second

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not func.is_view:
            inputs = tensors_in((args, tuple(kwargs.values())))
            work = kernel_seconds(
                func, args, kwargs, inputs, out, flops=self._rate, bytes_per_second=self.bytes_per_second
            )
            self.clock.spend(self.dispatch + work)
        return out

    def _rate(self, op: str, dtype: torch.dtype) -> float:
        return self.flops / 2 if dtype == torch.float64 else self.flops
