"""What both recorders share: the interception of every op of a step, and what other parts of the tracer ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from placer.errors import TraceError
from placer.tracing import layout
from placer.tracing.call_log import CallLog
from placer.tracing.layers import Layers, describe_layer
from placer.tracing.operators import Operator, as_sequence, flatten, operator, tensors_in
from placer.tracing.python_calls import PythonCalls, Uncounted
from placer.tracing.trace_data import TensorSpec

#: Bookkeeping of the profiler and of the dispatcher: no work of the step.
_IGNORED_NAMESPACES = frozenset({"profiler", "prim"})
_COPY = torch.ops.aten.copy_.default
_META = torch.device("meta")


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
        self.python_calls = PythonCalls(imports=False)
        self.last_op = ""
        self.original: Any = None
        self.paused = False
        #: Whether a tensor of the step is sparse.
        self.saw_sparse = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default torch wraps the class to hide it from its compiler; the first call imports that, for 2 seconds.
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the recorded step."""
        return ()

    @property
    def syncs(self) -> int:
        """Times that the host has waited for the device so far."""
        return self.log.syncs

    @syncs.setter
    def syncs(self, count: int) -> None:
        self.log.syncs = count

    @contextmanager
    def recording(self, on: bool) -> Iterator[None]:
        """Whether ops in the body are recorded; off where they are no part of the step."""
        before, self.paused = self.paused, not on
        try:
            yield
        finally:
            self.paused = before

    # --- interception -------------------------------------------------------------------------------------------------

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
            if func is _COPY and layout.same_memory(*args[:2]):
                return self._copied_onto_itself(func, args, kwargs)
            if self.log.dataflow is None:
                return self._dispatch(func, args, kwargs)
            before = len(self.log)
            result = self._dispatch(func, args, kwargs)
            if len(self.log) > before:
                self.log.connect(tensors_in(args, kwargs), [t for t in as_sequence(result) if isinstance(t, Tensor)])
            return result

    @abstractmethod
    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one op and return its result."""

    def _copied_onto_itself(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x[i] += y`` ends with a copy of ``x[i]`` onto itself: PyTorch notices that, and does nothing."""
        info = operator(func)
        self.last_op = info.name
        _, plain, _, _ = flatten(info, args, kwargs)
        spec = layout.spec_of(args[0])
        self.log.record(info.name, (spec, spec), (spec,), plain, view=True)
        return args[0]

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

    def _made(self, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], result: Any) -> Any:
        """Record an op that ran."""
        tensors = [t for t in as_sequence(result) if isinstance(t, Tensor)]
        specs = tuple([layout.spec_of(t) for t in tensors])
        self.log.record(info.name, inputs, specs, plain, info.view, info.in_place)
        if not (info.view or info.in_place):
            number = len(self.log) - 1
            for tensor, spec in zip(tensors, specs, strict=True):
                if layout.is_dense(tensor):
                    self.log.liveness.track(tensor, number, spec.stored_bytes)
                else:
                    self.saw_sparse = True
        return result

    # --- fused ops ----------------------------------------------------------------------------------------------------

    def fresh(self, spec: TensorSpec) -> Tensor:
        """A meta tensor made by the call recorded last."""
        with self.recording(False), torch._C.DisableTorchFunction():
            result = meta_like(spec)
            self.log.liveness.track(result, len(self.log) - 1, spec.stored_bytes)
            return result

    @abstractmethod
    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        """The outputs of the call recorded last, which has no gradient. ``compute`` or ``original`` gives values."""

    @abstractmethod
    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The outputs of the call recorded last, and a tensor to save that leads to their gradients (or None)."""

    @abstractmethod
    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients the ``_backward`` call recorded last makes; ``held`` is what ``evaluate`` gave."""

    # --- what the function mode and the copied layers ask -------------------------------------------------------------

    @abstractmethod
    def on_device(self, tensor: Tensor) -> bool:
        """Whether a real step has this tensor on the device being priced, so that reading it is a sync."""

    @abstractmethod
    def skipped_functions(self, count: int) -> None:
        """Count Python functions that the real step enters where its trace does not."""


def meta_like(spec: TensorSpec) -> Tensor:
    """A meta tensor of this shape, these strides and this dtype."""
    return torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device=_META)


class Failures:
    """A context around one phase of the step. Errors in it become errors of class ``kind``."""

    def __init__(self, phase: str, layers: Layers, recorder: Recorder, kind: type[TraceError] = TraceError) -> None:
        self.phase, self.layers, self.recorder, self.kind = phase, layers, recorder, kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        # A named boundary: the user's forward may raise anything. KeyboardInterrupt and TraceError pass.
        if isinstance(error, Exception) and not isinstance(error, TraceError):
            if self.phase == "backward":
                layer = self.layers.of_backward()
            else:
                layer = self.layers.current if self.layers.failed is None else self.layers.failed
            op = f", after {self.recorder.last_op}" if self.recorder.last_op else ""
            where = f"in {describe_layer(layer)}{op}"
            message = str(error).strip().split("\n")[0]
            raise self.kind(f"the {self.phase} failed {where}: {type(error).__name__}: {message}") from error


def _is_composite(func: Any) -> bool:
    """Whether an op is a function of others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
