"""Watches the backward passes of a step function, whichever function of torch begins them, and counts their nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from placer.tracing.isolation import replaced
from placer.tracing.real_recorder import RealRecorder


def nodes_of(outputs: Iterable[Any], inputs: Iterable[Any] | None = None) -> set[Any]:
    """The autograd nodes a backward pass from ``outputs`` runs, gradient accumulation included.

    With ``inputs`` (tensors), only the nodes on a path from an output to an input.
    """
    seen: dict[Any, list[Any]] = {}
    queue = [_node(output) for output in outputs]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen[node] = [following for following, _ in node.next_functions if following is not None]
        queue.extend(seen[node])
    return set(seen) if inputs is None else _leading_to({_node(tensor) for tensor in inputs}, seen)


def _leading_to(targets: set[Any], graph: dict[Any, list[Any]]) -> set[Any]:
    before: dict[Any, list[Any]] = {}
    for node, following in graph.items():
        for other in following:
            before.setdefault(other, []).append(node)
    found: set[Any] = set()
    queue = [node for node in targets if node in graph]
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue.extend(before.get(node, ()))
    return found


def _node(value: Any) -> Any:
    """The node that makes a tensor, or accumulates its gradient."""
    if isinstance(value, GradientEdge):
        return value.node
    return get_gradient_edge(value).node if isinstance(value, Tensor) and value.requires_grad else None


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
