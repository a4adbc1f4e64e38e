"""Runs one step of a workload on meta tensors and writes down what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from placer.errors import TraceError
from placer.tracing import layout, nests, optimizers
from placer.tracing.copying import Copies, unwrap
from placer.tracing.encoder import install
from placer.tracing.functions import FunctionMode
from placer.tracing.isolation import isolated
from placer.tracing.layers import Layers
from placer.tracing.python_calls import PythonCalls
from placer.tracing.recorder import Recorder, ValueUnknown, describe_layer
from placer.tracing.trace import Trace

if TYPE_CHECKING:
    from placer.workload import Workload


def trace(workload: Workload) -> Trace:
    """The ordered op calls of one step of ``workload``, found without running it.

    The model, its inputs, the optimizer and every global state are left as they were, also when tracing fails. Raises
    TraceError when the step cannot be followed on meta tensors: it reads values, calls into other libraries, or raises.
    """
    if workload.is_step_function or not isinstance(workload.target, nn.Module):
        raise TraceError(
            "step functions cannot be traced: the tensors they close over cannot be copied; pass the nn.Module itself, "
            "with loss= and optimizer="
        )
    original = unwrap(workload.target)
    with isolated():
        try:
            return _Step(workload, original).run()
        except ValueUnknown as unknown:
            # What it reads may be a constant, such as the points in time of a solver: let small ones keep their values.
            try:
                return _Step(workload, original, floats=True).run()
            except TraceError:
                raise unknown from None


class _Step:
    def __init__(self, workload: Workload, original: nn.Module, floats: bool = False) -> None:
        self.workload = workload
        self.train = workload.mode == "train"
        self.copies = Copies(floats)
        self.model = self.copies.module(original)
        self.args, self.kwargs = self.copies.inputs((workload.args, workload.kwargs))
        updates = self.train and workload.optimizer is not None
        self.plan = optimizers.plan(workload.optimizer or "adam", self.copies, self.model) if updates else None
        self.loss = self._copied_loss(workload.loss)
        if original.training != self.train:
            self.model.train(self.train)
        self.batch = tuple(layout.spec_of(t) for t in nests.tensors((self.args, self.kwargs)))
        self.parameters = tuple(layout.spec_of(p) for p in self.model.parameters())
        self.buffers = tuple(layout.spec_of(b) for b in self.model.buffers())
        self.layers = Layers(self.model)
        self.recorder = Recorder(self.layers, floats)
        self.python_calls = PythonCalls()
        self.functions = FunctionMode(self.recorder, workload.autocast, self.python_calls)
        install(original, self.model, self.recorder, workload.autocast is not None)

    def _copied_loss(self, loss: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return self.copies.module(loss) if isinstance(loss, nn.Module) else loss

    def run(self) -> Trace:
        recorder = self.recorder
        self.layers.reset()
        mode: Literal["train", "infer"] = "train" if self.train else "infer"
        nodes = 0
        outputs: tuple[Any, ...] = ()
        with self._errors("forward"), torch.set_grad_enabled(self.train), recorder, self.functions:
            with self.python_calls.counting():
                output = self.model(*self.args, **self.kwargs)
        self.layers.reset()
        recorder.end_phase("loss")
        if self.train:
            with self._errors("loss"), recorder, self.functions, self.python_calls.counting():
                loss = self._loss(output)
            del output
            recorder.end_phase("backward")
            nodes = self._backward(loss)
            del loss
            recorder.end_phase("optimizer")
            if self.plan is not None:
                optimizers.run(self.plan, recorder, self.layers)
            recorder.end_phase("optimizer")
        else:
            outputs = tuple(layout.spec_of(t) for t in nests.tensors(output))
        notes = [*self.copies.notes, *recorder.notes, *(self.plan.notes if self.plan else ())]
        return Trace(
            calls=recorder.op_calls(),
            mode=mode,
            parameters=self.parameters,
            buffers=self.buffers,
            batch=self.batch,
            outputs=outputs,
            optimizer=self.plan.name if self.plan else None,
            peak_activation_bytes=recorder.liveness.peak,
            optimizer_state_bytes=self.plan.state_bytes if self.plan else 0,
            module_calls=self.layers.calls,
            python_calls=self._entered(),
            autograd_nodes=nodes,
            syncs=recorder.syncs,
            memory=tuple(recorder.liveness.events),
            notes=tuple(notes),
        )

    def _entered(self) -> int:
        """Python functions the real forward and loss enter; a usual number where they could not be counted."""
        if not self.python_calls.known:
            return 4 * self.layers.calls + self.recorder.count
        # A module with hooks, as all have while they are traced, enters one function more.
        return max(self.python_calls.count - self.layers.calls, 0)

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
        nodes = _count_nodes(loss)
        liveness = self.recorder.liveness
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

    def _errors(self, phase: str) -> _Errors:
        return _Errors(phase, self.layers, self.recorder)


class _Errors:
    """Turns whatever the user's code raises into a TraceError that says where."""

    def __init__(self, phase: str, layers: Layers, recorder: Recorder) -> None:
        self.phase, self.layers, self.recorder = phase, layers, recorder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        # A named boundary: the user's forward may raise anything. KeyboardInterrupt and TraceError pass.
        if isinstance(error, Exception) and not isinstance(error, TraceError):
            layer = self.layers.of_backward() if self.phase == "backward" else self.layers.current
            op = f", after {self.recorder.last_op}" if self.recorder.last_op else ""
            where = f"in {describe_layer(layer)}{op}"
            message = str(error).strip().split("\n")[0]
            raise TraceError(f"the {self.phase} failed {where}: {type(error).__name__}: {message}") from error


def _sum_of_floating(output: Any) -> Tensor | None:
    total: Tensor | None = None
    for tensor in nests.tensors(output):
        if tensor.dtype.is_floating_point and tensor.requires_grad:
            total = tensor.sum() if total is None else total + tensor.sum()
    return total


def _count_nodes(loss: Tensor) -> int:
    """Autograd nodes backward will run, gradient accumulation included."""
    seen: set[Any] = set()
    queue: list[Any] = [loss.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        queue.extend(following for following, _ in node.next_functions)
    return len(seen)
