"""Watches the backward passes of a step function, whichever function of torch begins them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from placer.tracing.autograd_graph import nodes_of
from placer.tracing.isolation import replaced
from placer.tracing.real_recorder import RealRecorder


class BackwardPasses:
    """A context that counts backward passes and autograd nodes, and sets the phase of the recorder's log.

    What follows a pass (clipping, an update by hand) counts as the optimizer phase until a module runs again.
    """

    def __init__(self, recorder: RealRecorder) -> None:
        self.recorder = recorder
        self.passes = self.nodes = 0
        self._running = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> None:
        # All of torch's functions come by these two, also under names that a script has imported.
        for name, watched in (("_make_grads", self._beginning), ("_engine_run_backward", self._watched)):
            self._stack.enter_context(replaced(torch.autograd, name, watched(getattr(torch.autograd, name))))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _beginning(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._running and not self.recorder.paused:
                self.recorder.log.end_phase("backward")
            return run(*args, **kwargs)

        return call

    def _watched(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(outputs: Any, grads: Any, keep: Any, create: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            if self._running or self.recorder.paused:
                return run(outputs, grads, keep, create, inputs, *rest, **named)
            with self._pass(list(outputs), list(inputs) or None):
                return run(outputs, grads, keep, create, inputs, *rest, **named)

        return call

    @contextlib.contextmanager
    def _pass(self, outputs: list[Any], inputs: list[Any] | None) -> Iterator[None]:
        recorder = self.recorder
        recorder.python_calls.paused = True
        with recorder.recording(False), torch._C.DisableTorchFunction():
            nodes = nodes_of(outputs, inputs)
        handles = []
        for node in nodes:
            variable = getattr(node, "variable", None)  # the node accumulates this tensor's gradient
            if isinstance(variable, Tensor):
                handles.append(node.register_hook(_not_an_activation(recorder, variable)))
        self.passes += 1
        self.nodes += len(nodes)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            for handle in handles:
                handle.remove()
            recorder.python_calls.paused = False
            recorder.log.end_phase("optimizer")


def _not_an_activation(recorder: RealRecorder, variable: Tensor) -> Callable[..., None]:
    """Stop counting the gradient of a parameter as an activation once it is in place."""

    def hook(*_: object) -> None:
        if variable.grad is not None and variable.grad.layout is torch.strided:
            recorder.log.liveness.forget(variable.grad)

    return hook
