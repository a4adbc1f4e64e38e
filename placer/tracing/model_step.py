"""Traces one step of a model: forward, loss, backward, optimizer. The model and its inputs change on the way."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing import layout, optimizers, values
from placer.tracing.attempt import Attempt, FailedOnMeta, NothingTrains, Unfollowed
from placer.tracing.backward_passes import nodes_of
from placer.tracing.call_log import Dataflow
from placer.tracing.function_mode import FunctionMode
from placer.tracing.fused_ops import DeviceKind
from placer.tracing.isolation import PythonDraws, in_every_thread
from placer.tracing.layers import Layers
from placer.tracing.meta_recorder import MetaRecorder
from placer.tracing.reachable import Reachable
from placer.tracing.real_recorder import RealRecorder
from placer.tracing.recorder import Failures
from placer.tracing.trace_data import Trace
from placer.tracing.transformer_fast_path import install
from placer.workload import Workload, loss_of, unwrap


class ModelStep:
    """One step of ``workload``, as ``attempt`` says. ``hosted`` has the values of tensors on accelerators, by id."""

    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: dict[int, Tensor]) -> None:
        self.workload, self.attempt, self.kind = workload, attempt, kind
        self.counts_hold = counts_hold(workload)
        self.model = unwrap(workload.target)
        self.train = workload.mode == "train" and attempt.trains
        self.args, self.kwargs = workload.args, workload.kwargs
        _set_training(self.model, self.train)
        self._prepare_tensors(hosted)
        updates = self.train and workload.optimizer is not None
        self.plan = optimizers.plan(workload.optimizer or "adam", self.model) if updates else None
        self.weights, buffers = list(self.model.parameters()), list(self.model.buffers())
        self.batch = tuple(layout.spec_of(t) for t in self._inputs())
        self.parameters, self.buffers = tuple(map(layout.spec_of, self.weights)), tuple(map(layout.spec_of, buffers))
        self._begin()
        if workload.compiled is not None:
            self.recorder.log.dataflow = Dataflow()
        self.batch_values = self.recorder.log.values(self._inputs())

    def _inputs(self) -> list[Tensor]:
        return distinct((self.args, self.kwargs))

    def _prepare_tensors(self, hosted: dict[int, Tensor]) -> None:
        """Give the tensors of the step values, or take them away."""
        others = Reachable(loss=self.workload.loss, optimizer=self.workload.optimizer, inputs=(self.args, self.kwargs))
        inputs = self._inputs()
        weights = values.of_modules([self.model, *others.modules.values()])
        if self.attempt.real and self.workload.draw is not None:
            self.workload.draw()
        values.with_values([*weights, *inputs, *others.tensors], hosted)
        if self.attempt.real:
            values.draw(inputs)
        else:
            if any(isinstance(module, torch.jit.ScriptModule) for module in self.model.modules()):
                raise Unfollowed(f"{_name(self.model)} has TorchScript in it, which takes no tensors without values")
            values.without_values(weights, self.attempt.floats)
            values.without_values(inputs)
            values.without_values(t for t in others.tensors if t.requires_grad and t.is_leaf)
        if any(map(is_lazy, weights)):
            self._materialize()
        if self.attempt.real:
            if any(weight.is_meta for weight in values.of_modules([self.model])):
                raise TraceError("the step reads values, and a model on the meta device has none: give it values")
            for weight in weights:
                weight.grad = None

    def _materialize(self) -> None:
        """Run lazy modules once, unrecorded, so that their parameters get a shape."""
        self._begin()
        with self._errors("first run"), torch.no_grad(), self.recorder, self.functions:
            self.model(*self.args, **self.kwargs)

    def _begin(self) -> None:
        """Begin a record."""
        self.layers = Layers({"": self.model})
        self.recorder = (
            RealRecorder(self.layers, self.attempt.fused) if self.attempt.real
            else MetaRecorder(self.layers, self.attempt.floats, self.attempt.fused)
        )  # fmt: skip
        self.functions = FunctionMode(self.recorder, self.workload.autocast, self.kind)
        if self.attempt.fused:
            install(self.model, self.recorder, self.workload.autocast is not None)

    def run(self) -> Trace:
        """Run the step once. Raises TraceError when the step raises."""
        draws = PythonDraws()
        with (
            self.functions.autocast.watching(),
            self.layers.watching(),
            in_every_thread(self.recorder, self.functions),
        ):
            return self._run(draws)

    def _run(self, draws: PythonDraws) -> Trace:
        recorder = self.recorder
        self.layers.reset()
        mode: Literal["train", "infer"] = "train" if self.train else "infer"
        nodes = 0
        outputs: tuple[Any, ...] = ()
        output_values: tuple[int, ...] = ()
        counting = recorder.python_calls.counting()
        with self._errors("forward"), torch.set_grad_enabled(self.train), recorder, self.functions, counting:
            output = self.model(*self.args, **self.kwargs)
            if isinstance(output, types.GeneratorType):
                output = list(output)
        self.layers.reset()
        recorder.log.end_phase("loss")
        if self.train:
            own = self.workload.loss is not None  # else it is no code of the user's
            with self._errors("loss"), recorder, self.functions, recorder.python_calls.counting(own):
                loss = loss_of(output, self.workload.loss)
            if loss is None:
                raise NothingTrains("the loss does not depend on any parameter that requires a gradient")
            del output
            entered = recorder.python_calls.entered(self.layers.calls, len(recorder.log))
            recorder.log.end_phase("backward")
            nodes = self._backward(loss)
            del loss
            recorder.log.end_phase("optimizer")
            if self.plan is not None:
                optimizers.run(self.plan, recorder, self.layers)
            recorder.log.end_phase("optimizer")
        else:
            entered = recorder.python_calls.entered(self.layers.calls, len(recorder.log))
            outputs = tuple(layout.spec_of(t) for t in distinct(output))
            output_values = recorder.log.values(distinct(output))
        trace = Trace(
            calls=recorder.log.op_calls(),
            mode=mode,
            parameters=self.parameters,
            buffers=self.buffers,
            batch=self.batch,
            outputs=outputs,
            optimizer=self.plan.name if self.plan else None,
            peak_activation_bytes=recorder.log.liveness.peak,
            optimizer_state_bytes=self.plan.state_bytes if self.plan else 0,
            sparse_gradients=tuple(n for n, p in enumerate(self.weights) if _is_sparse(p.grad)),
            module_calls=self.layers.calls,
            python_calls=entered,
            loop_calls=self.workload.loop_calls,
            evicted_calls=recorder.python_calls.evicted,
            autograd_nodes=nodes,
            syncs=recorder.syncs,
            memory=tuple(recorder.log.liveness.events),
            compiled=self.workload.compiled,
            dataflow=recorder.log.connections(),
            batch_values=self.batch_values,
            output_values=output_values,
            real=self.attempt.real,
            notes=(*self._notes(), *draws.notes()),
        )
        if self.plan is not None and self.plan.name == "LBFGS" and self.plan.custom is None:
            return optimizers.repeated(trace, self.plan.groups[0][1])
        return trace

    def _notes(self) -> Iterator[str]:
        if self.attempt.real:
            yield f"traced a real run, because {self.attempt.why}; {self.counts_hold}"
        if self.workload.mode == "train" and not self.train:
            yield "priced as inference: nothing in the step requires a gradient"
        yield from self.recorder.notes
        if self.plan is not None:
            yield from self.plan.notes

    def _backward(self, loss: Tensor) -> int:
        nodes = len(nodes_of([loss]))
        liveness = self.recorder.log.liveness
        for parameter in self.weights:
            if parameter.requires_grad and parameter.is_leaf:
                parameter.register_post_accumulate_grad_hook(lambda p: liveness.forget(p.grad))
        with self._errors("backward"), self.recorder, self.functions:
            loss.backward()
        return nodes

    def _errors(self, phase: str) -> Failures:
        return Failures(phase, self.layers, self.recorder, TraceError if self.attempt.real else FailedOnMeta)


def counts_hold(workload: Workload) -> str:
    """The note on every trace of a real run: for which inputs its op counts hold."""
    return f"the op counts hold for inputs like {'the random ones drawn for it' if workload.is_shape else 'these'}"


def _set_training(model: nn.Module, train: bool) -> None:
    if getattr(model, "training", train) != train:
        with contextlib.suppress(NotImplementedError):  # an exported program is what it was exported as
            model.train(train)


def _name(model: nn.Module) -> str:
    return str(getattr(model, "original_name", type(model).__name__))


def _is_sparse(gradient: Tensor | None) -> bool:
    return gradient is not None and gradient.layout is torch.sparse_coo
