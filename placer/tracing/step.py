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


class _Step:
    """One step of ``workload``, as ``attempt`` says."""

    layers: Layers
    recorder: Recorder
    functions: FunctionMode
    updates: optimizers.Updates
    draws: PythonDraws
    #: What the step is given.
    batch: tuple[TensorSpec, ...]

    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind) -> None:
        self.workload, self.attempt, self.kind = workload, attempt, kind
        like = "the random ones drawn for it" if workload.is_shape else "these"
        #: For which inputs the op counts of a real run hold.
        self.counts_hold = f"the op counts hold for inputs like {like}"

    def inputs(self) -> list[Tensor]:
        """The tensors that the step is given."""
        return distinct(self.workload.batch)

    def begin(self, roots: Mapping[str, nn.Module], others: bool = False) -> None:
        """Begin a record. ``others``: modules that are part of no root count too."""
        attempt = self.attempt
        self.layers = Layers(roots, others)
        if attempt.real:
            self.recorder = RealRecorder(self.layers, attempt.fused)
        else:
            self.recorder = MetaRecorder(self.layers, attempt.floats, attempt.fused)
        self.functions = FunctionMode(self.recorder, self.workload.autocast, self.kind)
        self.updates = optimizers.Updates(self.recorder, self.kind)
        self.draws = PythonDraws()
        if self.workload.compiled is not None:
            self.recorder.log.dataflow = Dataflow()

    def entered(self) -> int:
        """The Python functions that were entered so far."""
        return self.recorder.python_calls.entered(self.layers.calls, len(self.recorder.log))

    def trace(self, notes: Iterable[str], outputs: Sequence[Tensor], **fields: Any) -> Trace:
        """The record as a trace; ``fields`` are those that depend on the kind of step."""
        log, updates = self.recorder.log, self.updates
        of_kind = [self.attempt.note] if self.attempt.note else []
        return Trace(
            notes=(*self.workload.notes, *notes, *self.draws.notes(), *of_kind),
            calls=log.op_calls(),
            batch=self.batch,
            outputs=_specs(outputs),
            output_values=log.values(outputs),
            optimizer="+".join(updates.names) or None,
            optimizer_state_bytes=updates.state_bytes,
            optimizer_flags=updates.flags,
            python_calls=self.entered(),
            peak_activation_bytes=log.peak_bytes,
            module_calls=self.layers.calls,
            loop_calls=self.workload.loop_calls,
            evicted_calls=self.recorder.python_calls.evicted,
            syncs=log.syncs,
            dataflow=log.connections(),
            real=self.attempt.real,
            missing_on_cpu=self.recorder.kernels.missing,
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
    step = _FunctionStep if workload.is_step_function else _ModelStep
    return step(workload, attempt, kind, hosted).run(), kind.others


def _gather(modules: Iterable[nn.Module]) -> None:
    """Have ``DataParallel`` call its module as it does without a GPU: it looks whether weights are on its first one."""
    for module in modules:
        for part in module.modules():
            if isinstance(part, nn.DataParallel):
                part.device_ids = []


def _specs(tensors: Iterable[Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(map(spec_of, tensors))


# --- a model: forward, loss, backward, optimizer ----------------------------------------------------------------------


class _ModelStep(_Step):
    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: Mapping[int, Tensor]) -> None:
        super().__init__(workload, attempt, kind)
        self.model = unwrap(workload.model)
        _gather([self.model])
        self.train = workload.mode == "train" and attempt.trains
        if getattr(self.model, "training", self.train) != self.train:
            with contextlib.suppress(NotImplementedError):  # an exported program is what it was exported as
                self.model.train(self.train)
        self._prepare_tensors(hosted)
        self.weights = list(self.model.parameters())
        self.parameters, self.buffers = _specs(self.weights), _specs(self.model.buffers())
        self.batch = _specs(self.inputs())
        self._begin()
        self.nodes = self.modules_in_backward = self.calls_in_backward = 0

    def _begin(self) -> None:
        self.begin({"": self.model})
        if self.attempt.fused:
            record_fast_paths(self.model, self.recorder, self.workload.autocast is not None)

    def _prepare_tensors(self, hosted: Mapping[int, Tensor]) -> None:
        """Give the tensors of the step values, or take them away."""
        workload, inputs, real = self.workload, self.inputs(), self.attempt.real
        others = Reachable(loss=workload.loss, optimizer=workload.optimizer, inputs=workload.batch)
        weights = values.of_modules([self.model, *others.modules.values()])
        if real and workload.draw is not None:
            workload.draw()
        values.with_values([*weights, *inputs, *others.tensors], hosted)
        if real:
            values.draw(inputs)
        else:
            if any(isinstance(module, torch.jit.ScriptModule) for module in self.model.modules()):
                name = getattr(self.model, "original_name", type(self.model).__name__)
                raise NeedsRealRun(f"{name} has TorchScript in it, which takes no tensors without values")
            values.without_values(weights, self.attempt.floats)
            values.without_values(inputs)
            values.without_values(t for t in others.tensors if t.requires_grad and t.is_leaf)
        if any(map(is_lazy, weights)):  # run lazy modules once, unrecorded, so that their parameters get a shape
            self._begin()
            with self.errors("first run"), torch.no_grad(), contextlib.ExitStack() as modes:
                if not real:  # with values, getting a shape is no op that a mode could follow
                    modes.enter_context(self.recorder)
                    modes.enter_context(self.functions)
                self.model(*workload.args, **workload.kwargs)
        if real:
            if any(weight.is_meta for weight in values.of_modules([self.model])):
                raise TraceError("the step reads values, and a model on the meta device has none: give it values")
            for weight in weights:
                weight.grad = None

    def run(self) -> Trace:
        with (
            self.functions.autocast.watching(),
            self.layers.watching(),
            self.updates.watching(),
        ):
            trace = self._run()
        chosen = self.workload.optimizer
        of_torch = isinstance(chosen, str) or type(chosen).__module__.startswith("torch.optim")
        if of_torch and any(call.op == "optimizer::LBFGS" for call in trace.calls):
            return optimizers.repeated(trace, self.workload.optimizer)
        return trace

    def _run(self) -> Trace:
        """The phases one after the other. Each tensor is let go where a script lets go of it."""
        log = self.recorder.log
        if not self.train:
            with self.recorder, self.functions:
                output = self._forward()
            return self._trace(distinct(output))
        for weight in self.weights:
            if weight.requires_grad and weight.is_leaf:  # holds the log alone, which holds no weight
                weight.register_post_accumulate_grad_hook(lambda updated: log.forget(updated.grad))
        with self.recorder, self.functions:
            self._evaluate()
            if self.workload.optimizer is not None:
                self.updates.end_step(self.workload.optimizer, self.model, self._evaluate)
        log.end_phase("optimizer")
        return self._trace([])

    def _forward(self) -> Any:
        """The model's output. What a script lets go of is let go."""
        self.layers.reset()
        self.recorder.log.end_phase("forward")
        with (
            self.errors("forward"),
            torch.set_grad_enabled(self.train),
            self.recorder.python_calls.counting(),
        ):
            output = self.model(*self.workload.args, **self.workload.kwargs)
            if isinstance(output, types.GeneratorType):
                output = list(output)
        self.layers.reset()
        self.recorder.log.end_phase("loss")
        return output

    def _evaluate(self) -> Tensor:
        """The loss, once its backward pass has run."""
        recorder, log = self.recorder, self.recorder.log
        output = self._forward()
        of_the_user = self.workload.loss is not None  # else it is no code of the user's
        with self.errors("loss"), torch.enable_grad(), recorder.python_calls.counting(of_the_user):
            loss = loss_of(output, self.workload.loss, self.workload.loss_target)
        if loss is None:
            raise NothingTrains("the loss does not depend on any parameter that requires a gradient")
        del output
        log.end_phase("backward")
        with recorder.recording(False), torch._C.DisableTorchFunction():
            self.nodes += len(nodes_of([loss]))
        modules, calls = self.layers.calls, len(log)
        recorder.python_calls.paused = True
        with self.errors("backward"):
            loss.backward()
        recorder.python_calls.paused = False
        self.modules_in_backward += self.layers.calls - modules
        self.calls_in_backward += len(log) - calls
        log.end_phase("optimizer")
        return loss

    def entered(self) -> int:
        modules, calls = self.layers.calls - self.modules_in_backward, len(self.recorder.log) - self.calls_in_backward
        return self.recorder.python_calls.entered(modules, calls)

    def _trace(self, outputs: list[Tensor]) -> Trace:
        sparse = [n for n, p in enumerate(self.weights) if p.grad is not None and p.grad.layout is torch.sparse_coo]
        return self.trace(
            self._notes(),
            outputs,
            mode="train" if self.train else "infer",
            autograd_nodes=self.nodes,
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
        yield from self.recorder.notes
        yield from self.updates.notes


# --- a step function --------------------------------------------------------------------------------------------------


class _FunctionStep(_Step):
    """One call of the step function, with its own loss, backward pass and optimizers. It really runs, on the CPU."""

    def __init__(self, workload: Workload, attempt: Attempt, kind: DeviceKind, hosted: Mapping[int, Tensor]) -> None:
        super().__init__(workload, attempt, kind)
        if workload.draw is not None:
            workload.draw()
        reachable = Reachable(step=workload.model, module=list(workload.modules), optimizer=workload.optimizer)
        self.roots, self.optimizers = reachable.modules, reachable.optimizers
        _gather(self.roots.values())
        inputs = self.inputs()
        values.with_values([*values.of_modules(self.roots.values()), *reachable.tensors, *inputs], hosted)
        values.draw(inputs)
        self.batch = _specs(inputs)
        self.begin(self.roots, others=True)

    def run(self) -> Trace:
        """``Trace.mode`` is train if it ran a backward pass."""
        recorder = self.recorder
        log = recorder.log
        passes = BackwardPasses(recorder)
        self.layers.reset()
        with (
            self.errors("step function"),
            self.layers.watching(self._entering),
            passes.watching(),
            self.updates.watching(),
            self.functions.autocast.watching(),
            recorder,
            self.functions,
            recorder.python_calls.counting(),
        ):
            output = self.workload.model(*self.workload.args, **self.workload.kwargs)
        log.end_phase("forward")
        train = passes.count > 0
        stepped = {*self.optimizers, *self.updates.stepped}
        updated = [p for optimizer in stepped for group in optimizer.param_groups for p in group["params"]]
        roots = self.roots.values()
        return self.trace(
            [f"traced a real run of the step function; {self.counts_hold}"],
            [] if train else distinct(output),
            mode="train" if train else "infer",
            parameters=_specs(distinct([[list(m.parameters()) for m in roots], updated])),
            buffers=_specs(distinct([list(m.buffers()) for m in roots])),
            autograd_nodes=passes.nodes,
            compiled=None if train else self.workload.compiled,
        )

    def _entering(self, module: nn.Module, args: Any) -> None:
        """A module's call after a backward pass begins the forward phase again. Lazy modules get their parameters."""
        if self.recorder.log.phase == "optimizer" and not self.recorder.paused:
            self.recorder.log.end_phase("forward")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            with self.recorder.recording(False):
                module.initialize_parameters(*args)


class BackwardPasses:
    """Counts backward passes and autograd nodes while ``watching``, and sets the phase of the recorder's log.

    What follows a pass (clipping, an update by hand) counts as the optimizer phase until a module runs again.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.count = self.nodes = 0
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
        self._running = True
        try:
            yield
        finally:
            self._running = False
            for handle in handles:
                handle.remove()
            recorder.python_calls.paused = False
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
