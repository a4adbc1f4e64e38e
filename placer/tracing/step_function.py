"""Traces a step function: any callable that performs one step, with its own loss, backward pass and optimizers.

It really runs, once, on the CPU, and so does all that it closes over.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from placer.nest import distinct
from placer.tracing import layout, values
from placer.tracing.attempt import Attempt
from placer.tracing.backward_passes import BackwardPasses
from placer.tracing.call_log import Dataflow
from placer.tracing.function_mode import FunctionMode
from placer.tracing.fused_ops import DeviceKind
from placer.tracing.isolation import PythonDraws, in_every_thread
from placer.tracing.layers import Layers
from placer.tracing.model_step import counts_hold
from placer.tracing.optimizers import OptimizerSteps
from placer.tracing.reachable import Reachable
from placer.tracing.real_recorder import RealRecorder
from placer.tracing.recorder import Failures
from placer.tracing.trace_data import TensorSpec, Trace
from placer.workload import Workload


class FunctionStep:
    """One call of the step function. ``hosted`` has the values of tensors on accelerators, by id."""

    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: dict[int, Tensor]) -> None:
        self.workload = workload
        self.counts_hold = counts_hold(workload)
        if workload.draw is not None:
            workload.draw()
        found = Reachable(step=workload.target, module=list(workload.modules), optimizer=workload.optimizer)
        self.roots, self.optimizers = found.modules, found.optimizers
        inputs = distinct((workload.args, workload.kwargs))
        values.with_values([*values.of_modules(self.roots.values()), *found.tensors, *inputs], hosted)
        values.draw(inputs)
        self.batch = _specs(inputs)
        self.layers = Layers(self.roots, others=True)
        self.recorder = RealRecorder(self.layers, attempt.fused)
        self.functions = FunctionMode(self.recorder, workload.autocast, kind)
        if workload.compiled is not None:
            self.recorder.log.dataflow = Dataflow()

    def run(self) -> Trace:
        """``Trace.mode`` is train if it ran a backward pass. Raises TraceError when it raises."""
        recorder, layers, functions = self.recorder, self.layers, self.functions
        backward, optimizers = BackwardPasses(recorder), OptimizerSteps(recorder, layers)
        draws = PythonDraws()
        layers.reset()
        with (
            Failures("step function", layers, recorder), layers.watching(self._entering), backward, optimizers,
            functions.autocast.watching(), in_every_thread(recorder, functions), recorder, functions,
            recorder.python_calls.counting(),
        ):  # fmt: skip
            output = self.workload.target(*self.workload.args, **self.workload.kwargs)
        recorder.log.end_phase("forward")
        train = backward.passes > 0
        held = [p for o in {*self.optimizers, *optimizers.stepped} for group in o.param_groups for p in group["params"]]
        roots = self.roots.values()
        return Trace(
            calls=recorder.log.op_calls(),
            mode="train" if train else "infer",
            parameters=_specs(distinct([[list(m.parameters()) for m in roots], held])),
            buffers=_specs(distinct([list(m.buffers()) for m in roots])),
            batch=self.batch,
            outputs=() if train else _specs(distinct(output)),
            output_values=() if train else recorder.log.values(distinct(output)),
            optimizer="+".join(optimizers.names) or None,
            peak_activation_bytes=recorder.log.liveness.peak,
            optimizer_state_bytes=optimizers.state_bytes,
            module_calls=layers.calls,
            python_calls=recorder.python_calls.entered(layers.calls, len(recorder.log)),
            loop_calls=self.workload.loop_calls,
            evicted_calls=recorder.python_calls.evicted,
            autograd_nodes=backward.nodes,
            syncs=recorder.syncs,
            memory=tuple(recorder.log.liveness.events),
            compiled=None if train else self.workload.compiled,
            dataflow=recorder.log.connections(),
            real=True,
            notes=(f"traced a real run of the step function; {self.counts_hold}", *draws.notes()),
        )

    def _entering(self, module: nn.Module, args: Any) -> None:
        """A module's call after a backward pass begins the forward phase again. Lazy modules get their parameters."""
        if self.recorder.log.phase == "optimizer" and not self.recorder.paused:
            self.recorder.log.end_phase("forward")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            with self.recorder.recording(False):
                module.initialize_parameters(*args)


def _specs(tensors: list[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(layout.spec_of(t) for t in tensors)
