"""Watches the backward passes of a step function: ``Tensor.backward``, ``torch.autograd.backward`` and ``grad``."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from placer.tracing.autograd_graph import nodes_of
from placer.tracing.real_recorder import RealRecorder


class BackwardPasses:
    """A context that counts backward passes and autograd nodes, and sets the phase of the recorder's log.

    What follows a pass (clipping, an update by hand) counts as the optimizer phase until a module runs again.
    """

    def __init__(self, recorder: RealRecorder) -> None:
        self.recorder = recorder
        self.passes = self.nodes = 0
        self._running = False
        self._thread = threading.get_ident()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> None:
        # Tensor.backward looks torch.autograd.backward up when it is called, so this catches both.
        for name, position in (("backward", 5), ("grad", 1)):
            original = getattr(torch.autograd, name)
            setattr(torch.autograd, name, self._watched(original, position))
            self._stack.callback(setattr, torch.autograd, name, original)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _watched(self, original: Callable[..., Any], position: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._running or self.recorder.paused or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            first = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
            inputs = args[position] if position < len(args) else kwargs.get("inputs")
            with self._pass(_listed(first), None if inputs is None else _listed(inputs)):
                return original(*args, **kwargs)

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
                recorder.undo.tensor(variable)
                handles.append(node.register_hook(_not_an_activation(recorder, variable)))
        self.passes += 1
        self.nodes += len(nodes)
        recorder.log.end_phase("backward")
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


def _listed(value: Any) -> list[Any]:
    if isinstance(value, (Tensor, GradientEdge)):
        return [value]
    return list(value.values() if isinstance(value, dict) else value)
