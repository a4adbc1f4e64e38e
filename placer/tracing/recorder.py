"""Records every op of a step: on meta tensors, or while the step really runs, with the same calls for the same network.

On meta tensors only ops on small tensors whose values are known run for real. Steps that read other values really run;
a fused op runs unrecorded inside its one call.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from placer.nest import distinct, map_nest
from placer.tracing import values
from placer.tracing.call_log import CallLog, Layers, describe_layer
from placer.tracing.cpu_kernels import CpuKernels
from placer.tracing.operators import (
    CHECKS,
    COUNTS,
    MASKED_INDEXING,
    READS,
    Call,
    Specs,
    as_sequence,
    known_outputs,
    map_tensors,
    mask_to_indices,
    on_meta,
    read_call,
    remember,
    specs_of,
    tensors_in,
)
from placer.tracing.python_calls import PythonCalls, Uncounted
from placer.tracing.trace_data import TensorSpec, dense, is_dense, same_memory, spec_of
from placer.tracing.values import KnownValues, ValueUnknown

#: Bookkeeping of the profiler and of the dispatcher: no work of the step.
_IGNORED_NAMESPACES = frozenset({"profiler", "prim"})
_COPY = torch.ops.aten.copy_.default
_DETACH = torch.ops.aten.detach.default
_META = torch.device("meta")
_CPU = torch.device("cpu")
_TAKEN = "the update reads values, which are taken to be 1"
_ONE_DRAW = "the step draws numbers and reads values: this is what one draw runs, another may run more or less"


class Recorder(TorchDispatchMode, ABC):
    """A context in which every op of the step goes to ``log``; ``MetaRecorder`` and ``RealRecorder`` answer the op.

    ``paused``: ops run and are not recorded. ``fused``: functions that devices run as one kernel are one call.
    ``original`` is the call a fused op stands for, as a ``functools.partial``, while that op is recorded.
    """

    #: Operators that take functions (``cond``, ``flex_attention``) come here too.
    supports_higher_order_operators = True
    #: Whether the step really runs, on real tensors.
    real: bool
    #: Where tensors are made that a function is told to make on some device: naming one could create its context.
    argument_device: str

    def __init__(self, layers: Layers, fused: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers, self.fused = layers, fused
        self.log = CallLog(layers)
        self.kernels = CpuKernels()
        self.python_calls = PythonCalls(imports=False)
        self.last_op = ""
        self.original: Any = None
        self.paused = False
        #: Whether a tensor of the step is sparse.
        self.saw_sparse = False
        #: What a user should know of the recorded step.
        self.notes: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default torch wraps the class to hide it from its compiler; the first call imports that, for 2 seconds.
        return False

    @contextmanager
    def recording(self, on: bool) -> Iterator[None]:
        """Whether ops in the body are recorded; off where they are no part of the step."""
        before, self.paused = self.paused, not on
        try:
            yield
        finally:
            self.paused = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        with Uncounted(), torch._C.DisableTorchFunction():
            if isinstance(func, HigherOrderOperator):
                return self._taken_apart(func, args, kwargs)
            if types and any(map(is_traceable_wrapper_subclass, tensors_in(args, kwargs))):
                return NotImplemented  # a tensor made of others: its class calls for ops on those
            if func.namespace in _IGNORED_NAMESPACES:
                return func(*args, **kwargs)
            if torch.is_inference_mode_enabled() and _is_composite(func):  # else autograd takes it apart
                with self:
                    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
            before = len(self.log)
            if func is _COPY and same_memory(*args[:2]):
                result = self._record_copy_onto_itself(read_call(func, args, kwargs))
            else:
                result = self._dispatch(func, args, kwargs)
                if self.log.dataflow is not None and len(self.log) > before:
                    self.log.connect(tensors_in(args, kwargs), tensors_in(as_sequence(result), {}))
            return result

    @abstractmethod
    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one op and return its result."""

    def _record_copy_onto_itself(self, call: Call) -> Any:
        """``x[i] += y`` ends with a copy of ``x[i]`` onto itself: PyTorch notices that, and does nothing."""
        self.last_op = call.info.name
        spec = spec_of(call.args[0])
        self.log.record(call.info.name, (spec, spec), (spec,), call.plain, view=True)
        return call.args[0]

    def _taken_apart(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that takes functions as eager PyTorch does, op by op."""
        if func.name() == "cond":
            chosen, operands = args[1 if bool(args[0]) else 2], args[3]
            with self:
                return chosen(*operands)
        kernel = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if kernel is None:
            raise NotImplementedError(f"{func} has no eager form that could be followed op by op")
        with self:
            return kernel(*args, **kwargs)

    def record_executed(self, call: Call, result: Any) -> Any:
        """Record an op that ran."""
        info = call.info
        tensors = [t for t in as_sequence(result) if isinstance(t, Tensor)]
        if info.returns_nothing and info.writes:  # what it writes first is its result
            position, name = info.writes[0]
            tensors = tensors_in((call.args[position] if position < len(call.args) else call.kwargs[name],), {})
        specs = tuple([spec_of(t) for t in tensors])
        self.log.record(info.name, call.inputs, specs, call.plain, info.view, info.in_place)
        if not (info.view or info.in_place):
            for tensor, spec in zip(tensors, specs, strict=True):
                if is_dense(tensor):
                    self.log.track(tensor, spec)
                else:
                    self.saw_sparse = True
        return result

    # --- fused ops ----------------------------------------------------------------------------------------------------

    def fresh(self, spec: TensorSpec) -> Tensor:
        """A meta tensor made by the call recorded last."""
        with self.recording(False), torch._C.DisableTorchFunction():
            result = _meta_tensor(spec)
            self.log.track(result, spec)
            return result

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        """The outputs of the call recorded last, which has no gradient. ``compute`` or ``original`` gives values."""
        return tuple(self.fresh(spec) for spec in specs)

    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The outputs of the call recorded last, and a tensor to save that leads to their gradients (or None)."""
        return self.results(specs), None

    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients the ``_backward`` call recorded last makes; ``held`` is what ``evaluate`` gave."""
        return tuple(None if spec is None else self.fresh(spec) for spec in wanted)

    @abstractmethod
    def on_device(self, tensor: Tensor) -> bool:
        """Whether a real step has this tensor on the device being priced, so that reading it is a sync."""


def _meta_tensor(spec: TensorSpec) -> Tensor:
    return torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device=_META)


def _is_composite(func: Any) -> bool:
    """Whether an op is a function of others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


# --- on meta tensors --------------------------------------------------------------------------------------------------


class MetaRecorder(Recorder):
    """Answers every op with meta tensors. An op whose tensors all have known values runs for real.

    Reading a value that is not known raises ValueUnknown. With ``floats``, small floating point constants and draws
    have known values as well.
    """

    real = False
    argument_device = "meta"

    def __init__(self, layers: Layers, floats: bool = False, fused: bool = True) -> None:
        super().__init__(layers, fused)
        self.values = KnownValues(floats)
        self._drew = False

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is _DETACH and args[0].is_meta:  # no call of a step (see ``CallLog.record``)
            return func(*args)
        call = read_call(func, args, kwargs)
        info = call.info
        self.last_op = info.name
        self.kernels.check(call, self.log.layer)
        if info.base in CHECKS:
            self.log.syncs += 1
        if call.n_real and self.values.any_lost:
            lost = sum(map(self.values.is_lost, tensors_in(args, kwargs)))
            call = call._replace(n_meta=call.n_meta + lost, n_real=call.n_real - lost)
        if info.name in READS:
            return self._read(call)
        if call.n_real or not call.n_meta:
            handled, result = self._with_values(call)
            if handled:
                return result
            masked = info.base.rstrip("_") in MASKED_INDEXING
            if call.n_real and call.n_meta and masked and not self.values.any_lost:
                args, syncs = mask_to_indices(args)
                self.log.syncs += syncs
                call = read_call(func, args, kwargs)
        if info.returns_self and _fits(call.inputs):
            result = args[0] if args else kwargs["self"]
            self.values.lose(result)
            self.log.record(info.name, call.inputs, (spec_of(result),), call.plain, in_place=True)
            return result
        # What is known of an op on dense tensors of these shapes does not hold for sparse ones.
        sparse = self.saw_sparse and any(t.layout is not torch.strided for t in tensors_in(args, kwargs))
        if sparse and info.base == "clone":  # the meta kernel forgets how many rows there are
            self.log.record(info.name, call.inputs, call.inputs, call.plain)
            return args[0]
        functional = info.functional and not sparse
        outputs = known_outputs(call) if functional else None
        if outputs is not None:
            return self.record_inferred(call, *outputs)
        written = [args[at] if at < len(args) else kwargs.get(name) for at, name in info.writes]
        for tensor in tensors_in(tuple(written), {}):
            self.values.lose(tensor)
        if info.returns_nothing and not call.n_real:  # without values, there is nothing to write
            return self.record_executed(call, None)
        result = func(*map_tensors(_to_meta, args), **map_tensors(_to_meta, on_meta(info, kwargs)))
        outputs = specs_of(result) if functional else None
        if outputs is not None:
            remember(call, outputs)
        return self.record_executed(call, result)

    def record_inferred(self, call: Call, specs: Specs, bare: bool) -> Any:
        """Record a functional op whose output specs are known, and build the outputs."""
        self.log.record(call.info.name, call.inputs, tuple([s for s in specs if s is not None]), call.plain)
        results: list[Tensor | None] = []
        for spec in specs:
            tensor = None if spec is None else _meta_tensor(spec)
            if spec is not None and tensor is not None:
                self.log.track(tensor, spec)
            results.append(tensor)
        return results[0] if bare else tuple(results)

    def _read(self, call: Call) -> Any:
        """Give a value to Python, if it is known."""
        name, inputs = call.info.name, call.inputs
        result: Any
        if call.n_meta and inputs and inputs[0].dtype == "bool" and _asked_by_torch():
            # nn.TransformerEncoder asks whether a mask is causal: only a hint, and "no" is always correct.
            result = False
        elif call.n_meta and inputs and self.log.phase == "optimizer":
            # A norm, a ratio: what an update runs hardly depends on it.
            result = torch.ones((), dtype=getattr(torch, inputs[0].dtype)).item()
            if _TAKEN not in self.notes:
                self.notes.append(_TAKEN)
        elif call.n_meta:
            raise ValueUnknown(
                f"{describe_layer(self.layers.current)} reads a tensor's value ({name}: .item(), bool(), int() or "
                "float() of a tensor), which is only known when the step runs"
            )
        else:
            result = call.func(*call.args, **call.kwargs)
            if self._drew and not self.notes:
                self.notes.append(_ONE_DRAW)
        # An optimizer's counters of steps stay on the CPU.
        self.log.syncs += call.n_meta > 0 or self.log.phase != "optimizer"
        self.log.record(name, inputs, (), call.plain)
        return result

    # --- tensors with known values ------------------------------------------------------------------------------------

    def _with_values(self, call: Call) -> tuple[bool, Any]:
        """Run an op whose tensors all have values, if its results are small. (False, None) otherwise."""
        info = call.info
        if call.n_meta:
            return self._with_some_values(call)
        if call.n_real == 0:
            return self._factory(call)
        if not self.values.can_run(info, call.inputs, tensors_in(call.args, call.kwargs)):
            return False, None
        kwargs = call.kwargs
        if info.takes_device:
            kwargs = {**kwargs, "device": "cpu" if kwargs.get("device") is None else kwargs["device"]}
            if torch.device(kwargs["device"]).type != "cpu":
                return False, None
        self.log.syncs += info.base in COUNTS
        result = self._run(call, kwargs)
        self.record_executed(call, result)
        if info.view or info.in_place:
            return True, result
        small = [
            t if self.values.keeps(t) or not isinstance(t, Tensor) else values.meta_like(t) for t in as_sequence(result)
        ]
        return True, small[0] if isinstance(result, Tensor) else type(result)(small)

    def _run(self, call: Call, kwargs: dict[str, Any]) -> Any:
        """Run an op for real."""
        self._drew |= torch.Tag.nondeterministic_seeded in call.func.tags
        return call.func(*call.args, **kwargs)

    def _with_some_values(self, call: Call) -> tuple[bool, Any]:
        """Ops on meta tensors whose output shape follows from the values of another argument."""
        args, dtype = call.args, call.inputs[0].dtype
        if call.info.base == "masked_select" and call.n_real == 1 and not args[1].is_meta:
            self.log.syncs += 1
            chosen = int(args[1].expand(torch.broadcast_shapes(args[0].shape, args[1].shape)).sum())
            return True, self.record_inferred(call, (dense((chosen,), dtype),), True)
        if call.info.base == "_pack_padded_sequence" and call.n_real == 1:
            # The batch sizes keep their values for recurrent layers.
            padded, lengths, batch_first = args
            rows, sizes = call.func(torch.zeros(*padded.shape[:2], 1), lengths, batch_first)
            spec = dense((rows.shape[0], *padded.shape[2:]), dtype)
            return True, (self.record_inferred(call, (spec,), True), sizes)
        return False, None

    def _factory(self, call: Call) -> tuple[bool, Any]:
        """An op without tensor arguments: its result has values where they may steer the step."""
        if not call.info.takes_device:
            return False, None
        result = call.func(*call.args, **on_meta(call.info, call.kwargs))
        generator = call.kwargs.get("generator")
        if self.values.made_by(call.info, result) and (generator is None or generator.device.type == "cpu"):
            result = self._run(call, {**call.kwargs, "device": "cpu", "pin_memory": None})
        return True, self.record_executed(call, result)

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        if self.original is not None:
            with self.recording(False), torch._C.DisableTorchFunction():
                self.kernels.check_function(self.original, self.log.layer)
        return super().results(specs)

    def on_device(self, tensor: Tensor) -> bool:
        return tensor.is_meta


def _to_meta(tensor: Tensor) -> Tensor:
    """A tensor without values: an op on mixed devices would refuse to run."""
    return tensor if tensor.is_meta else values.meta_like(tensor)


#: Whose frames stand between an op and the code that called for it.
_BETWEEN = ("placer.tracing.", "torch.utils.", "torch._")


def _asked_by_torch() -> bool:
    """Whether the Python code that reads the value is one of PyTorch's own modules."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("torch.nn.")


def _fits(inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether an in-place op obviously succeeds; otherwise the meta kernel decides."""
    shape = inputs[0].shape
    return all(i.shape == shape or not i.shape for i in inputs[1:])


# --- while the step runs ----------------------------------------------------------------------------------------------


class RealRecorder(Recorder):
    """Runs what it records, on the CPU."""

    real = True
    argument_device = "cpu"

    def on_device(self, tensor: Tensor) -> bool:
        return not values.keeps_values(tensor)  # the host knows small integer tensors, as in a trace on meta tensors

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = read_call(func, args, kwargs)
        info = call.info
        self.last_op = info.name
        if info.base.rstrip("_") in MASKED_INDEXING:
            args, syncs = mask_to_indices(args)
            self.log.syncs += syncs
            call = read_call(func, args, kwargs)
        self.log.syncs += info.name in READS or info.base in COUNTS or info.base in CHECKS
        return self.record_executed(call, func(*args, **kwargs))

    # --- fused ops ----------------------------------------------------------------------------------------------------

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        paused, self.layers.paused = self.layers.paused, True
        try:
            with self.recording(False), torch._C.DisableTorchFunction(), torch.no_grad():
                return self._outputs(specs, distinct((compute or self.original)()))
        finally:
            self.layers.paused = paused

    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        if not any(needed):
            return self.results(specs), None
        original = self.original
        sources: list[Any] = []
        with self.recording(False), torch._C.DisableTorchFunction(), torch.enable_grad():
            stand_ins: dict[int, Any] = {}
            anchor = torch.zeros((), requires_grad=True)
            for tensor, wanted in zip(tensors, needed, strict=True):
                source = None
                if tensor is not None and id(tensor) not in stand_ins:
                    if wanted:
                        stand_in = _Source.apply(anchor, [tensor])  # type: ignore[no-untyped-call]
                        source = get_gradient_edge(stand_in)
                    else:
                        stand_in = tensor.detach()
                    stand_ins[id(tensor)] = stand_in
                sources.append(source)
            args, kwargs = map_nest(lambda t: stand_ins.get(id(t), t), (list(original.args), original.keywords))
            made = distinct(original.func(*args, **kwargs))
            held = torch.empty(0)
            edges = [get_gradient_edge(t) if t.requires_grad else None for t in made]
            held.placer_edges = (sources, edges)  # type: ignore[attr-defined]
            return self._outputs(specs, made), held

    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        assert held is not None  # a backward pass comes only after ``evaluate`` with something needed
        sources, edges = held.placer_edges  # type: ignore[attr-defined]
        with self.recording(False), torch._C.DisableTorchFunction():
            incoming = [(e, g) for e, g in zip(edges, grads, strict=True) if e is not None and g is not None]
            asked = [e for e in sources if e is not None]
            computed: list[Any] = [None] * len(asked)
            if incoming and asked:
                computed = list(
                    torch.autograd.grad(
                        [e for e, _ in incoming], asked, [g for _, g in incoming], retain_graph=True, allow_unused=True
                    )
                )
            results: list[Tensor | None] = []
            for spec, source in zip(wanted, sources, strict=True):
                # A tensor given twice has no second gradient: the first one is the sum.
                value = None if source is None else computed.pop(0)
                results.append(None if spec is None else self._laid_out(value, spec))
            return tuple(results)

    def _outputs(self, specs: Sequence[TensorSpec], made: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self._laid_out(tensor.detach(), spec) for tensor, spec in zip(made, specs, strict=False))

    def _laid_out(self, tensor: Tensor | None, spec: TensorSpec) -> Tensor:
        """The tensor in memory of its own, with the strides the trace says."""
        if tensor is None or spec_of(tensor) != spec or tensor.untyped_storage().nbytes() != spec.stored_bytes:
            fresh = torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device=_CPU)
            tensor = fresh.zero_() if tensor is None else fresh.copy_(tensor)
        self.log.track(tensor, spec)
        return tensor


class _Source(torch.autograd.Function):
    """A stand-in for an input whose graph does not keep the input's memory alive."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, box: list[Tensor]) -> Tensor:
        return box[0].detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None
