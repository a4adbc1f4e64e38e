"""Traces one step of a model on copies: forward, loss, backward, optimizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from placer.errors import TraceError
from placer.tracing import layout, optimizers, pytrees
from placer.tracing.autograd_graph import nodes_of
from placer.tracing.copies import Copies
from placer.tracing.dataflow import Dataflow
from placer.tracing.device_kind import DeviceKind
from placer.tracing.failures import Failures
from placer.tracing.function_mode import FunctionMode
from placer.tracing.layers import Layers
from placer.tracing.meta_recorder import MetaRecorder
from placer.tracing.real_recorder import RealRecorder
from placer.tracing.tensor_copies import meta_tensor, real_input, real_tensor
from placer.tracing.trace_data import Trace
from placer.tracing.transformer_fast_path import install
from placer.tracing.undo import Undo
from placer.tracing.unfollowed import Unfollowed

if TYPE_CHECKING:
    from placer.workload import Workload


class ModelStep:
    """Copies of model, inputs and optimizer, for one step on meta tensors.

    ``real`` makes the recorder of a real run: then the copies have values. ``floats``: small floating point constants
    keep their values too.
    """

    def __init__(
        self,
        workload: Workload,
        original: nn.Module,
        undo: Undo,
        kind: DeviceKind,
        floats: bool = False,
        real: Callable[[Layers], RealRecorder] | None = None,
    ) -> None:
        self.workload = workload
        self.failure = Unfollowed if real is None else TraceError
        self.train = workload.mode == "train"
        if real is None:
            self.copies = Copies(partial(meta_tensor, floats=floats), meta_tensor)
        else:
            self.copies = Copies(real_tensor, real_input, scripted=True)
        self.model = self.copies.module(original)
        self.args, self.kwargs = self.copies.inputs((workload.args, workload.kwargs))
        updates = self.train and workload.optimizer is not None
        self.plan = optimizers.plan(workload.optimizer or "adam", self.copies, self.model) if updates else None
        self.loss = self._copied_loss(workload.loss)
        if original.training != self.train:
            self.model.train(self.train)
        self.weights, buffers = list(self.model.parameters()), list(self.model.buffers())
        self.batch = tuple(layout.spec_of(t) for t in pytrees.tensors((self.args, self.kwargs)))
        self.parameters, self.buffers = tuple(map(layout.spec_of, self.weights)), tuple(map(layout.spec_of, buffers))
        undo.own_all((self.weights, buffers, self.args, self.kwargs))
        self.layers = Layers(self.model)
        self.recorder = MetaRecorder(self.layers, undo, floats) if real is None else real(self.layers)
        if workload.compiled is not None or workload.on_cpu:
            self.recorder.log.dataflow = Dataflow()
        self.batch_values = self.recorder.log.values(pytrees.tensors((self.args, self.kwargs)))
        self.functions = FunctionMode(self.recorder, workload.autocast, kind)
        install(original, self.model, self.recorder, workload.autocast is not None)

    def _copied_loss(self, loss: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return self.copies.module(loss) if isinstance(loss, nn.Module) else loss

    def run(self) -> Trace:
        """Run the step once. Raises Unfollowed, or TraceError in a real run, when the step raises."""
        with self.functions.autocast.watching():
            return self._run()

    def _run(self) -> Trace:
        recorder = self.recorder
        self.layers.reset()
        mode: Literal["train", "infer"] = "train" if self.train else "infer"
        nodes = 0
        outputs: tuple[Any, ...] = ()
        output_values: tuple[int, ...] = ()
        counting = recorder.python_calls.counting()
        with self._errors("forward"), torch.set_grad_enabled(self.train), recorder, self.functions, counting:
            output = self.model(*self.args, **self.kwargs)
        self.layers.reset()
        recorder.log.end_phase("loss")
        if self.train:
            with self._errors("loss"), recorder, self.functions, recorder.python_calls.counting():
                loss = self._loss(output)
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
            outputs = tuple(layout.spec_of(t) for t in pytrees.tensors(output))
            output_values = recorder.log.values(pytrees.tensors(output))
        notes = [*self.copies.notes, *recorder.notes, *(self.plan.notes if self.plan else ())]
        return Trace(
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
            evicted_calls=recorder.python_calls.evicted,
            autograd_nodes=nodes,
            syncs=recorder.syncs,
            memory=tuple(recorder.log.liveness.events),
            compiled=self.workload.compiled,
            dataflow=recorder.log.connections(),
            batch_values=self.batch_values,
            output_values=output_values,
            notes=tuple(notes),
        )

    def _loss(self, output: Any) -> Tensor:
        if self.loss is not None:
            loss = self.loss(output)
        else:
            loss = getattr(output, "loss", None)
            if not (isinstance(loss, Tensor) and loss.dtype.is_floating_point and loss.dim() == 0):
                loss = _sum_of_floating(output)
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise TraceError("the loss does not depend on any parameter that requires a gradient")
        return loss

    def _backward(self, loss: Tensor) -> int:
        nodes = len(nodes_of([loss]))
        liveness = self.recorder.log.liveness
        handles = [
            parameter.register_post_accumulate_grad_hook(lambda p: liveness.forget(p.grad))
            for parameter in self.model.parameters()
            if parameter.requires_grad
        ]
        with self._errors("backward"), self.recorder, self.functions:
            loss.backward()
        for handle in handles:
            handle.remove()
        return nodes

    def _errors(self, phase: str) -> Failures:
        return Failures(phase, self.layers, self.recorder, self.failure)


def _is_sparse(gradient: Tensor | None) -> bool:
    return gradient is not None and gradient.layout is torch.sparse_coo


def _sum_of_floating(output: Any) -> Tensor | None:
    total: Tensor | None = None
    for tensor in pytrees.tensors(output):
        if tensor.dtype.is_floating_point and tensor.requires_grad:
            total = tensor.sum() if total is None else total + tensor.sum()
    return total
