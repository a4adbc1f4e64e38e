"""Traces a step function: any callable that performs one step, with its own loss, backward pass and optimizers.

Copies cannot replace what it closes over, so it really runs, once, on the user's own modules. Afterwards everything it
wrote is restored, byte by byte (see ``undo``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from placer.tracing import layout, pytrees
from placer.tracing.backward_passes import BackwardPasses
from placer.tracing.dataflow import Dataflow
from placer.tracing.device_kind import DeviceKind
from placer.tracing.failures import Failures
from placer.tracing.function_mode import FunctionMode
from placer.tracing.isolation import isolated
from placer.tracing.layers import Layers
from placer.tracing.optimizer_steps import OptimizerSteps
from placer.tracing.python_calls import Uncounted
from placer.tracing.reachable import Reachable
from placer.tracing.real_recorder import RealRecorder
from placer.tracing.tensor_copies import real_input
from placer.tracing.trace_data import TensorSpec, Trace
from placer.tracing.undo import Undo

if TYPE_CHECKING:
    from placer.workload import Workload

_NOTE = "traced a real run of the step function, and put back all tensors it wrote"


def trace_function(
    workload: Workload, kind: DeviceKind, limit_seconds: float, clock: Callable[[], float]
) -> Trace:
    """One real call of the step function, on the device its modules are on.

    Restores modules, optimizers, gradients, closures and random state, also when it raises. ``Trace.mode`` is train if
    it ran a backward pass. Raises TraceError when it raises or takes longer than ``limit_seconds`` of ``clock``.
    """
    undo = Undo()
    if workload.draw is not None:
        workload.draw()
    with isolated():
        if torch.cuda.is_initialized():  # else nothing draws from it, and reading it would create a context
            undo.later(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        try:
            return _Run(workload, kind, undo, limit_seconds, clock).trace()
        finally:
            undo.restore()


def counts_hold(workload: Workload) -> str:
    """The note on every trace of a real run: for which inputs its op counts hold."""
    drawn = any(t.is_meta for t in pytrees.tensors((workload.args, workload.kwargs)))
    return f"the op counts hold for inputs like {'the random ones drawn for it' if drawn else 'these'}"


class _Run:
    def __init__(
        self, workload: Workload, kind: DeviceKind, undo: Undo, limit_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.workload, self.kind = workload, kind
        self.reachable = Reachable(undo)
        self.reachable.add(workload.target, "step")
        self.reachable.add(list(workload.modules), "module")
        self.reachable.add(workload.optimizer, "optimizer")
        self.layers = _SharedLayers(self.reachable)
        held = (p.device for root in self.reachable.modules.values() for p in root.parameters())
        device = next(held, torch.device("cpu"))
        self.recorder = RealRecorder(self.layers, undo, clock, limit_seconds, device)
        if workload.compiled is not None:
            self.recorder.log.dataflow = Dataflow()
        self.args, self.kwargs = self._inputs(device)

    def _inputs(self, device: torch.device) -> Any:
        """Copies of the example on its device; inputs that are only shapes are drawn on the modules' device."""

        def convert(tensor: Tensor) -> Tensor:
            copied = real_input(tensor).to(device if tensor.is_meta else tensor.device)
            return copied.detach().requires_grad_(tensor.requires_grad)

        copies = pytrees.map_tensors((self.workload.args, self.workload.kwargs), convert, {})
        self.recorder.undo.own_all(copies)
        return copies

    def trace(self) -> Trace:
        recorder, layers = self.recorder, self.layers
        batch = _specs(pytrees.tensors((self.args, self.kwargs)))
        backward, optimizers = BackwardPasses(recorder), OptimizerSteps(recorder, layers, self.reachable)
        functions = FunctionMode(recorder, self.workload.autocast, self.kind)
        layers.reset()
        with Failures("step function", layers, recorder), layers.watching(recorder), backward, optimizers:
            with functions.autocast.watching(), recorder, functions, recorder.python_calls.counting():
                output = self.workload.target(*self.args, **self.kwargs)
            recorder.check_time()
            recorder.log.end_phase("forward")
        train = backward.passes > 0
        held = [p for o in self.reachable.optimizers for group in o.param_groups for p in group["params"]]
        roots = self.reachable.modules.values()
        return Trace(
            calls=recorder.log.op_calls(),
            mode="train" if train else "infer",
            parameters=_specs(pytrees.tensors([[list(m.parameters()) for m in roots], held])),
            buffers=_specs(pytrees.tensors([list(m.buffers()) for m in roots])),
            batch=batch,
            outputs=() if train else _specs(pytrees.tensors(output)),
            output_values=() if train else recorder.log.values(pytrees.tensors(output)),
            optimizer="+".join(optimizers.names) or None,
            peak_activation_bytes=recorder.log.liveness.peak,
            optimizer_state_bytes=optimizers.state_bytes,
            module_calls=layers.calls,
            python_calls=recorder.python_calls.entered(layers.calls, len(recorder.log)),
            evicted_calls=recorder.python_calls.evicted,
            autograd_nodes=backward.nodes,
            syncs=recorder.syncs,
            memory=tuple(recorder.log.liveness.events),
            compiled=None if train else self.workload.compiled,
            dataflow=recorder.log.connections(),
            notes=(f"{_NOTE}; {counts_hold(self.workload)}",),
        )


class _SharedLayers(Layers):
    """Layers of the user's own modules: global hooks watch them, and no module gets a hook."""

    def __init__(self, reachable: Reachable) -> None:
        super().__init__(nn.Module())
        self.reachable = reachable
        self._names: dict[int, str] = {}
        roots = reachable.modules
        for name, root in roots.items():
            for path, module in root.named_modules():
                full = path if len(roots) == 1 else f"{name}.{path}" if path else name
                self._names.setdefault(id(module), full)
                for parameter in module._parameters.values():
                    if parameter is not None:
                        self._owners.setdefault(id(parameter), full)

    @contextlib.contextmanager
    def watching(self, recorder: RealRecorder) -> Iterator[None]:
        """Follow every module's call. A call after a backward pass begins the forward phase again."""

        def enter(module: nn.Module, args: Any) -> None:
            if id(module) not in self._names:
                with recorder.recording(False), Uncounted():
                    self.reachable.add(module, type(module).__name__)
                self._names[id(module)] = type(module).__name__
            if recorder.log.phase == "optimizer" and not recorder.paused:
                recorder.log.end_phase("forward")
            self.entered(self._names[id(module)])

        before = register_module_forward_pre_hook(enter)
        after = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()


def _specs(tensors: Iterator[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(layout.spec_of(t) for t in tensors)
