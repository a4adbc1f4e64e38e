"""Watches the optimizer steps of a step function, and records one call per updated tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing import layout, optimizers
from placer.tracing.layers import Layers
from placer.tracing.real_recorder import RealRecorder


class OptimizerSteps:
    """A context. Optimizers of torch.optim run unrecorded, as one call per tensor; others are recorded op by op."""

    def __init__(self, recorder: RealRecorder, layers: Layers) -> None:
        self.recorder, self.layers = recorder, layers
        self.names: list[str] = []
        self.stepped: list[torch.optim.Optimizer] = []
        self._state_bytes: dict[int, int] = {}
        self._running: list[torch.optim.Optimizer] = []
        self._handles: list[Any] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of state of all optimizers that stepped."""
        return sum(self._state_bytes.values())

    def __enter__(self) -> None:
        self._handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        for handle in self._handles:
            handle.remove()
        if error is None and self._running:
            raise TraceError(f"the step function goes on after {type(self._running[-1]).__name__}.step() failed")

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if self.recorder.paused:
            return None
        self.recorder.log.end_phase("optimizer")
        self._running.append(optimizer)
        if not _known(optimizer):
            return None
        self.recorder.paused = self.recorder.python_calls.paused = True
        return tuple(self._recorded(a) for a in args), {k: self._recorded(v) for k, v in kwargs.items()}

    def _recorded(self, value: Any) -> Any:
        """A closure given to ``step`` computes the loss again: its ops are recorded."""
        if not callable(value) or isinstance(value, torch.optim.Optimizer):
            return value

        def closure() -> Any:
            with self.recorder.recording(True):
                self.recorder.log.end_phase("forward")
                self.recorder.python_calls.paused = False
                try:
                    return value()
                finally:
                    self.recorder.python_calls.paused = True
                    self.recorder.log.end_phase("optimizer")

        return closure

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._running or self._running[-1] is not optimizer:
            return
        self._running.pop()
        name = type(optimizer).__name__
        self.stepped.append(optimizer)
        if name not in self.names:
            self.names.append(name)
        if _known(optimizer):
            self.recorder.paused = self.recorder.python_calls.paused = False
            groups = [
                (list(g["params"]), {k: v for k, v in g.items() if k != "params"}) for g in optimizer.param_groups
            ]
            plan = optimizers.Plan(name, groups)
            optimizers.run(plan, self.recorder, self.layers)
            self._state_bytes[id(optimizer)] = plan.state_bytes
        else:
            held = distinct(dict(optimizer.state))
            self._state_bytes[id(optimizer)] = sum(layout.spec_of(t).stored_bytes for t in held)
        if not self._running:
            self.recorder.log.end_phase("forward")


def _known(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.optim")
