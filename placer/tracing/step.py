"""Runs one step of a model, or a step function, while it is recorded. Its objects change on the way."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from placer.errors import TraceError
from placer.nest import distinct
from placer.tracing import optimizers, values
from placer.tracing.call_log import Dataflow, Layers, describe_layer
from placer.tracing.copies import Reachable
from placer.tracing.function_mode import FunctionMode
from placer.tracing.fused_ops import DeviceKind, record_fast_paths
from placer.tracing.isolation import PythonDraws, replaced
from placer.tracing.recorder import MetaRecorder, RealRecorder, Recorder
from placer.tracing.trace_data import TensorSpec, Trace, spec_of
from placer.tracing.values import NeedsRealRun
from placer.workload import Workload, loss_of, unwrap


class FailedOnMeta(NeedsRealRun):
    """The step raised something on tensors without values."""


class NothingTrains(TraceError):
    """The loss depends on no parameter that requires a gradient."""


@dataclass(frozen=True)
class Attempt:
    """One way to trace a step. ``kind`` is the kind of device to trace for.

    ``real``: run the step on tensors with values, for the reason ``why``. ``floats``: on tensors without values, small
    floating point constants keep theirs. ``fused``: functions that are one kernel on real devices are one call.
    ``trains``: whether the step may train. ``note`` is what a reader should know of this kind of device.
    """

    kind: str = "cpu"
    real: bool = False
    floats: bool = False
    fused: bool = True
    trains: bool = True
    why: str = ""
    note: str = ""


class _Record:
    """What is recorded of one step of ``workload``, as ``attempt`` says."""

    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, roots: Mapping[str, nn.Module]) -> None:
        self.workload, self.attempt = workload, attempt
        self.layers = Layers(roots, others=workload.is_step_function)
        self.recorder: Recorder
        if attempt.real:
            self.recorder = RealRecorder(self.layers, attempt.fused)
        else:
            self.recorder = MetaRecorder(self.layers, attempt.floats, attempt.fused)
        self.log = self.recorder.log
        self.functions = FunctionMode(self.recorder, workload.autocast, kind)
        self.updates = optimizers.Updates(self.recorder, kind)
        self.passes = BackwardPasses(self.recorder, self.functions, ends_phase=workload.is_step_function)
        self.draws = PythonDraws()
        if workload.compiled is not None:
            self.log.dataflow = Dataflow()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow modules, updates and regions of autocast. Ops are recorded inside ``recording``."""
        with (
            self.functions.autocast.watching(),
            self.layers.watching(self._entering),
            self.updates.watching(),
        ):
            yield

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the ops of the body."""
        with self.recorder, self.functions:
            yield

    def _entering(self, module: nn.Module, args: Any) -> None:
        """A module's call after a backward pass begins the forward phase again. Lazy modules get their parameters."""
        if self.log.phase == "optimizer" and not self.recorder.paused:
            self.log.end_phase("forward")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            with self.recorder.recording(False):
                module.initialize_parameters(*args)

    def trace(self, notes: Iterable[str], outputs: Sequence[Tensor], **fields: Any) -> Trace:
        """The record as a trace; ``fields`` are those that depend on the kind of step."""
        recorder, log, updates, passes = self.recorder, self.log, self.updates, self.passes
        of_kind = [self.attempt.note] if self.attempt.note else []
        outside = self.layers.calls - passes.modules, len(log) - passes.calls
        return Trace(
            notes=(*self.workload.notes, *notes, *self.draws.notes(), *of_kind),
            calls=log.op_calls(),
            outputs=_specs(outputs),
            output_values=log.values(outputs),
            optimizer="+".join(updates.names) or None,
            optimizer_state_bytes=updates.state_bytes,
            optimizer_flags=updates.flags,
            python_calls=recorder.python_calls.entered(*outside),
            peak_activation_bytes=log.peak_bytes,
            module_calls=self.layers.calls,
            autograd_nodes=passes.nodes,
            loop_calls=self.workload.loop_calls,
            evicted_calls=recorder.python_calls.evicted,
            syncs=log.syncs,
            dataflow=log.connections(),
            real=self.attempt.real,
            missing_on_cpu=recorder.kernels.missing,
            **fields,
        )

    @contextlib.contextmanager
    def errors(self, phase: str) -> Iterator[None]:
        """Whatever the user's code raises in a phase of the step becomes a TraceError that says where."""
        try:
            yield
        except TraceError:
            raise
        except Exception as error:
            if phase == "backward":
                layer = self.layers.of_backward()
            else:
                layer = self.layers.current if self.layers.failed is None else self.layers.failed
            op = f", after {self.recorder.last_op}" if self.recorder.last_op else ""
            message = str(error).strip().split("\n")[0]
            text = f"the {phase} failed in {describe_layer(layer)}{op}: {type(error).__name__}: {message}"
            if layer.endswith("_guards_fn"):  # torch.export's own
                text += "; the program was exported for that size: give that, or export it with dynamic_shapes"
            raise (TraceError if self.attempt.real else FailedOnMeta)(text) from error


def run_step(workload: Workload, attempt: Attempt, hosted: Mapping[int, Tensor]) -> tuple[Trace, dict[str, str]]:
    """Run one step. ``hosted`` has the values of tensors on accelerators, by id.

    Returns its trace, and the kinds of devices that run other ops, each with a note or "". Raises TraceError when the
    step raises.
    """
    kind = DeviceKind(attempt.kind)
    if workload.is_step_function:
        return _run_function(workload, attempt, kind, hosted), kind.others
    return _ModelStep(workload, attempt, kind, hosted).run(), kind.others


def _gather(modules: Iterable[nn.Module]) -> None:
    """Have ``DataParallel`` call its module as it does without a GPU: it looks whether weights are on its first one."""
    for module in modules:
        for part in module.modules():
            if isinstance(part, nn.DataParallel):
                part.device_ids = []


def _counts_hold(workload: Workload) -> str:
    """For which inputs the op counts of a real run hold: asked before those without values get some."""
    like = "the random ones drawn for it" if workload.is_shape else "these"
    return f"the op counts hold for inputs like {like}"


def _specs(tensors: Iterable[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(map(spec_of, tensors))


# --- a model: forward, loss, backward, optimizer ----------------------------------------------------------------------


class _ModelStep:
    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: Mapping[int, Tensor]) -> None:
        self.workload, self.attempt = workload, attempt
        self.counts_hold = _counts_hold(workload)
        self.model = unwrap(workload.model)
        _gather([self.model])
        self.train = workload.mode == "train" and attempt.trains
        if getattr(self.model, "training", self.train) != self.train:
            with contextlib.suppress(NotImplementedError):  # an exported program is what it was exported as
                self.model.train(self.train)
        self._prepare_tensors(hosted)
        self.batch = _specs(distinct(workload.batch))
        if any(map(is_lazy, values.of_modules([self.model]))):
            self._give_shapes(_Record(workload, attempt, kind, {"": self.model}))
        self.weights = list(self.model.parameters())
        self.parameters, self.buffers = _specs(self.weights), _specs(self.model.buffers())  # a step may replace some
        self.record = _Record(workload, attempt, kind, {"": self.model})
        if attempt.fused:
            record_fast_paths(self.model, self.record.recorder, workload.autocast is not None)

    def _give_shapes(self, unused: _Record) -> None:
        """Run lazy modules once, into a record that nobody reads, so that their parameters get a shape.

        With values, getting a shape is no op that a mode could follow.
        """
        modes = contextlib.nullcontext() if self.attempt.real else unused.recording()
        with unused.errors("first run"), torch.no_grad(), modes:
            self.model(*self.workload.args, **self.workload.kwargs)

    def _prepare_tensors(self, hosted: Mapping[int, Tensor]) -> None:
        """Give the tensors of the step values, or take them away."""
        workload, inputs = self.workload, distinct(self.workload.batch)
        others = Reachable(loss=workload.loss, optimizer=workload.optimizer, inputs=workload.batch)
        weights = values.of_modules([self.model, *others.modules.values()])
        if self.attempt.real and workload.draw is not None:
            workload.draw()
        values.with_values([*weights, *inputs, *others.tensors], hosted)
        if self.attempt.real:
            if any(weight.is_meta for weight in values.of_modules([self.model])):
                raise TraceError(
                    f"the step is traced by a real run, because {self.attempt.why}; "
                    "a model on the meta device has no values: give it values"
                )
            values.draw(inputs)
            for weight in weights:
                weight.grad = None
            return
        if any(isinstance(module, torch.jit.ScriptModule) for module in self.model.modules()):
            name = getattr(self.model, "original_name", type(self.model).__name__)
            raise NeedsRealRun(f"{name} has TorchScript in it, which takes no tensors without values")
        values.without_values(weights, self.attempt.floats)
        values.without_values(inputs)
        values.without_values(t for t in others.tensors if t.requires_grad and t.is_leaf)

    def run(self) -> Trace:
        with self.record.watching():
            trace = self._run()
        chosen = self.workload.optimizer
        of_torch = isinstance(chosen, str) or type(chosen).__module__.startswith("torch.optim")
        if of_torch and any(call.op == "optimizer::LBFGS" for call in trace.calls):
            return optimizers.repeated(trace, self.workload.optimizer)
        return trace

    def _run(self) -> Trace:
        """The phases one after the other. Each tensor is let go where a script lets go of it."""
        record = self.record
        if not self.train:
            with record.recording():
                output = self._forward()
            return self._trace(distinct(output))
        with record.recording():
            self._evaluate()
            if self.workload.optimizer is not None:
                record.updates.end_step(self.workload.optimizer, self.model, self._evaluate)
        record.log.end_phase("optimizer")
        return self._trace([])

    def _forward(self) -> Any:
        """The model's output. What a script lets go of is let go."""
        record = self.record
        record.layers.reset()
        record.log.end_phase("forward")
        with (
            record.errors("forward"),
            torch.set_grad_enabled(self.train),
            record.recorder.python_calls.counting(),
        ):
            output = self.model(*self.workload.args, **self.workload.kwargs)
            if isinstance(output, types.GeneratorType):
                output = list(output)
        record.layers.reset()
        record.log.end_phase("loss")
        return output

    def _evaluate(self) -> Tensor:
        """The loss, once its backward pass has run."""
        record = self.record
        output = self._forward()
        of_the_user = self.workload.loss is not None  # else it is no code of the user's
        with record.errors("loss"), torch.enable_grad(), record.recorder.python_calls.counting(of_the_user):
            loss = loss_of(output, self.workload.loss, self.workload.loss_target)
        if loss is None:
            raise NothingTrains("the loss does not depend on any parameter that requires a gradient")
        del output
        with record.errors("backward"), record.passes.watching():
            loss.backward()
        record.log.end_phase("optimizer")
        return loss

    def _trace(self, outputs: list[Tensor]) -> Trace:
        sparse = [n for n, p in enumerate(self.weights) if p.grad is not None and p.grad.layout is torch.sparse_coo]
        return self.record.trace(
            self._notes(),
            outputs,
            mode="train" if self.train else "infer",
            batch=self.batch,
            parameters=self.parameters,
            buffers=self.buffers,
            sparse_gradients=tuple(sparse),
            compiled=self.workload.compiled,
        )

    def _notes(self) -> Iterator[str]:
        if self.attempt.real:
            yield f"traced a real run, because {self.attempt.why}; {self.counts_hold}"
        if self.workload.mode == "train" and not self.train:
            yield "treated as inference: nothing in the step requires a gradient"
        yield from self.record.recorder.notes
        yield from self.record.updates.notes


# --- a step function --------------------------------------------------------------------------------------------------


def _run_function(workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: Mapping[int, Tensor]) -> Trace:
    """One call of the step function, with its own loss, backward pass and optimizers. It really runs, on the CPU.

    ``Trace.mode`` is train if it ran a backward pass.
    """
    counts_hold = _counts_hold(workload)
    if workload.draw is not None:
        workload.draw()
    reachable = Reachable(step=workload.model, module=list(workload.modules), optimizer=workload.optimizer)
    roots = reachable.modules.values()
    _gather(roots)
    inputs = distinct(workload.batch)
    values.with_values([*values.of_modules(roots), *reachable.tensors, *inputs], hosted)
    values.draw(inputs)
    batch = _specs(inputs)
    record = _Record(workload, attempt, kind, reachable.modules)
    record.layers.reset()
    counting, passes = record.recorder.python_calls.counting(), record.passes.watching()
    with record.errors("step function"), record.watching(), passes, record.recording(), counting:
        output = workload.model(*workload.args, **workload.kwargs)
    record.log.end_phase("forward")
    train = record.passes.count > 0
    stepped = {*reachable.optimizers, *record.updates.stepped}
    updated: list[Tensor] = []
    for optimizer in stepped:
        for group in optimizer.param_groups:
            updated += group["params"]
    return record.trace(
        [f"traced a real run of the step function; {counts_hold}"],
        [] if train else distinct(output),
        mode="train" if train else "infer",
        batch=batch,
        parameters=_specs(distinct([[list(m.parameters()) for m in roots], updated])),
        buffers=_specs(distinct([list(m.buffers()) for m in roots])),
        compiled=None if train else workload.compiled,
    )


class BackwardPasses:
    """Counts backward passes and autograd nodes while ``watching``, and sets the phase of the recorder's log.

    What follows a pass (clipping, an update by hand) counts as the optimizer phase until a module runs again.
    ``ends_phase``: that begins with the end of a pass.
    """

    def __init__(self, recorder: Recorder, functions: FunctionMode, ends_phase: bool) -> None:
        self.recorder, self.functions, self.ends_phase = recorder, functions, ends_phase
        self.count = self.nodes = 0
        #: Modules that were entered, and ops that were called, inside of the passes.
        self.modules = self.calls = 0
        self._running = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the passes: all of torch's functions come by these two, also under names that a script imported."""
        autograd: Any = torch.autograd
        make_grads, run_backward = autograd._make_grads, autograd._engine_run_backward

        def begin(*args: Any, **kwargs: Any) -> Any:
            if not self._running and not self.recorder.paused:
                self.recorder.log.end_phase("backward")
            return make_grads(*args, **kwargs)

        def run(outputs: Any, grads: Any, keep: Any, create: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            counted = not self._running and not self.recorder.paused
            with self._pass(list(outputs), list(inputs) or None) if counted else contextlib.nullcontext():
                return run_backward(outputs, grads, keep, create, inputs, *rest, **named)

        with replaced(autograd, "_make_grads", begin), replaced(autograd, "_engine_run_backward", run):
            yield

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
                handles.append(node.register_hook(self._forgetting(variable)))
        self.count += 1
        self.nodes += len(nodes)
        modules, calls = recorder.layers.calls, len(recorder.log)
        self._running = True
        try:
            with self.functions.in_backward():
                yield
        finally:
            self._running = False
            self.modules += recorder.layers.calls - modules
            self.calls += len(recorder.log) - calls
            for handle in handles:
                handle.remove()
            recorder.python_calls.paused = False
            if self.ends_phase:
                recorder.log.end_phase("optimizer")

    def _forgetting(self, variable: Tensor) -> Callable[..., None]:
        """Stop counting the gradient of a parameter as an activation once it is in place."""
        return lambda *_: self.recorder.log.forget(variable.grad)


def nodes_of(outputs: Iterable[Any], inputs: Iterable[Any] | None = None) -> set[Any]:
    """The autograd nodes a backward pass from ``outputs`` runs, gradient accumulation included.

    With ``inputs`` (tensors), only the nodes on a path from an output to an input.
    """
    before: dict[Any, list[Any]] = {}  # the nodes that lead to each node
    ahead: list[tuple[Any, Any]] = [(_node(output), None) for output in outputs]
    while ahead:
        node, previous = ahead.pop()
        if node is None:
            continue
        if node not in before:
            before[node] = []
            ahead += [(following, node) for following, _ in node.next_functions]
        if previous is not None:
            before[node].append(previous)
    if inputs is None:
        return set(before)
    on_a_path: set[Any] = set()
    ahead_back = [node for node in map(_node, inputs) if node in before]
    while ahead_back:
        node = ahead_back.pop()
        if node not in on_a_path:
            on_a_path.add(node)
            ahead_back += before[node]
    return on_a_path


def _node(value: Any) -> Any:
    """The node that makes a tensor, or accumulates its gradient."""
    if isinstance(value, GradientEdge):
        return value.node
    return get_gradient_edge(value).node if isinstance(value, Tensor) and value.requires_grad else None
