"""Records every op call of a step and answers it with meta tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from placer.tracing import layout, rules
from placer.tracing.arguments import (
    COUNTS,
    MASKED_INDEXING,
    READS,
    as_sequence,
    flatten,
    mask_to_indices,
    on_meta,
    tensors_in,
    to_meta,
)  # fmt: skip
from placer.tracing.copying import CONCRETE_ELEMENTS, CONCRETE_FLOATS, keeps_values, meta_tensor
from placer.tracing.failures import ValueUnknown, describe_layer
from placer.tracing.formulas import Specs
from placer.tracing.layers import Layers
from placer.tracing.liveness import Liveness
from placer.tracing.python_calls import PythonCalls, Uncounted
from placer.tracing.schema import Operator, operator
from placer.tracing.trace import OpCall, Phase, TensorSpec
from placer.tracing.undo import Undo

#: Bookkeeping of the profiler and of the dispatcher: no work of the step.
_UNSEEN = frozenset({"profiler", "prim"})
#: Ops on tensors with values run for real only while their result stays small, and these may grow it.
_GROWING = frozenset({"mm", "bmm", "repeat", "repeat_interleave", "outer", "cartesian_prod"})


#: Factories of floating point values a step may read. Empty and zero tensors are there to be written to.
_CONSTANTS = frozenset({"arange", "linspace", "logspace", "full", "scalar_tensor", "ones"})


class Recorder(TorchDispatchMode):
    """Use as a context manager; set ``phase`` as the step moves on, then read ``op_calls()``.

    Tensors are meta, except small integer ones, which keep their values: an op whose tensors all have values runs for
    real.
    """

    def __init__(self, layers: Layers, undo: Undo, floats: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.undo = undo  # protects tensors with values that the step writes and that are not its own
        self.floats = floats  # small floating point constants keep their values as well
        self.phase: Phase = "forward"
        self.syncs = 0
        self.last_op = ""
        self.notes: list[str] = []
        self.original: Any = None  # the call a whole op stands for, as a functools.partial
        self._quiet = False
        self._unknown: dict[int, Any] = {}  # storages of tensors whose values a meta tensor was written into
        self.python_calls = PythonCalls()
        self._calls: list[OpCall] = []
        self.liveness = Liveness(self._calls.__len__)
        self._kept: dict[int, int] = {}
        self._phase_start = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default the class is wrapped to hide it from the compiler; its first call imports that: 2 seconds.
        return False

    # --- the step ---------------------------------------------------------------------------------------------------

    def end_phase(self, following: Phase) -> None:
        """Note which outputs of the phase are still alive, and go on to the next one."""
        self._kept.update(self.liveness.kept(self._phase_start, len(self._calls)))
        self._phase_start = len(self._calls)
        self.phase = following

    @property
    def count(self) -> int:
        """Calls recorded so far."""
        return len(self._calls)

    def rewind(self, count: int) -> None:
        """Forget what was recorded since ``count`` was read."""
        del self._calls[count:]

    def op_calls(self) -> tuple[OpCall, ...]:
        """What was recorded, in order."""
        for index, nbytes in self._kept.items():
            self._calls[index] = replace(self._calls[index], kept_bytes=nbytes)
        self._kept.clear()
        return tuple(self._calls)

    def record(
        self,
        op: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        args: tuple[Hashable, ...],
        view: bool = False,
        in_place: bool = False,
        layer: str | None = None,
    ) -> None:
        if op == "aten::detach":
            # Interception itself makes autograd detach what it saves, which no real step does; where one does (a
            # gradient put in its place) it belongs to its autograd node, which is counted.
            return
        if layer is None:
            layer = self.layers.of_backward() if self.phase == "backward" else self.layers.current
        self._calls.append(OpCall(op, inputs, outputs, args, self.phase, layer, view, in_place))

    @property
    def quiet(self) -> bool:
        """Whether ops run unseen now."""
        return self._quiet

    @contextmanager
    def silence(self, on: bool = True) -> Iterator[None]:
        """Ops in the body are no part of the step; with ``on=False`` they are again."""
        before, self._quiet = self._quiet, on
        try:
            yield
        finally:
            self._quiet = before

    def set_quiet(self, on: bool) -> None:
        """The same from here on, where begin and end are two functions."""
        self._quiet = on

    def entered_unseen(self, functions: int) -> None:
        """So many Python functions are entered by the real step, and not by its trace."""
        self.python_calls.count += functions

    def fresh(self, spec: TensorSpec) -> Tensor:
        """A tensor made by the call recorded last."""
        with self.silence(), torch._C.DisableTorchFunction():
            result = _empty(spec)
            self.liveness.track(result, len(self._calls) - 1, spec.stored_bytes)
            return result

    # --- ops kept whole: a real run computes them ---------------------------------------------------------------------

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        """The outputs of the call recorded last, which has no gradient. ``compute`` or ``original`` would make them."""
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

    # --- what the function mode asks ----------------------------------------------------------------------------------

    #: Where tensors are made whatever device the step names: naming one could create its context. None: as it says.
    constructor_device: str | None = "cpu"
    argument_device: str | None = "meta"

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a real step has this tensor on the device being priced, so that reading it is a sync."""
        return tensor.is_meta

    def changing(self, func: Any, args: tuple[Any, ...]) -> None:
        """Called before a function that may set an attribute of a tensor."""

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._quiet or func.namespace in _UNSEEN:
            return func(*args, **kwargs)
        with Uncounted(), torch._C.DisableTorchFunction():
            if func is torch.ops.aten.copy_.default and layout.same_memory(*args[:2]):
                return self._copied_onto_itself(func, args, kwargs)
            return self._dispatch(func, args, kwargs)

    def _copied_onto_itself(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``x[i] += y`` ends by putting ``x[i]`` where it is already: PyTorch looks at that, and does nothing."""
        info = operator(func)
        self.last_op = info.name
        _, plain, _, _ = flatten(info, args, kwargs)
        if not args[0].is_meta:
            self.undo.tensor(args[0])  # not written, but autograd counts a version
        spec = layout.spec_of(args[0])
        self.record(info.name, (spec, spec), (spec,), plain, view=True)
        return args[0]

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        info = operator(func)
        self.last_op = info.name
        slots, plain, meta, real = flatten(info, args, kwargs)
        inputs = tuple([s for s in slots if type(s) is TensorSpec])
        if real and self._unknown:
            lost = sum(self._is_unknown(t) for t in tensors_in(args, kwargs))
            meta, real = meta + lost, real - lost
        if info.name in READS:
            return self._read(func, info, inputs, plain, meta, args, kwargs)
        if real or not meta:
            handled, result = self._with_values(func, info, inputs, plain, meta, real, args, kwargs)
            if handled:
                return result
            if real and meta and not self._unknown and info.base.rstrip("_") in MASKED_INDEXING:
                args, self.syncs = mask_to_indices(args, self.syncs)
                slots, plain, _, _ = flatten(info, args, kwargs)
                inputs = tuple([s for s in slots if type(s) is TensorSpec])
        if info.returns_self and _fits(inputs):
            result = args[0] if args else kwargs["self"]
            if not result.is_meta:
                self.undo.tensor(result)  # not written, but autograd counts a version
            if meta and not result.is_meta:
                storage = result.untyped_storage()
                self._unknown[id(storage)] = storage
            self.record(info.name, inputs, (layout.spec_of(result),), plain, False, True)
            return result
        if info.functional:
            known = rules.look_up(func, info, slots, plain, args, kwargs)
            if known is None:
                result = func(*to_meta(args), **to_meta(on_meta(info, kwargs)))
                known = rules.specs_of(result)
                if known is not None:
                    rules.remember(func, slots, plain, known)
                return self._made(info, inputs, plain, result)
            return self._make(info, inputs, plain, *known)
        result = func(*to_meta(args), **to_meta(on_meta(info, kwargs)))
        return self._made(info, inputs, plain, result)

    def _make(
        self, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], specs: Specs, bare: bool
    ) -> Any:
        """Record a functional op whose output specs are known, and build the outputs."""
        self.record(info.name, inputs, tuple([s for s in specs if s is not None]), plain)
        number = len(self._calls) - 1
        results: list[Tensor | None] = []
        for spec in specs:
            if spec is None:
                results.append(None)
                continue
            tensor = _empty(spec)
            self.liveness.track(tensor, number, spec.stored_bytes)
            results.append(tensor)
        return results[0] if bare else tuple(results)

    def _made(self, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], result: Any) -> Any:
        """Record an op that ran."""
        tensors = [t for t in as_sequence(result) if isinstance(t, Tensor)]
        specs = tuple([layout.spec_of(t) for t in tensors])
        self.record(info.name, inputs, specs, plain, info.view, info.in_place)
        if not (info.view or info.in_place):
            number = len(self._calls) - 1
            for tensor, spec in zip(tensors, specs, strict=True):
                if tensor.layout is torch.strided:
                    self.liveness.track(tensor, number, spec.stored_bytes)
        return result

    # --- tensors that have values -------------------------------------------------------------------------------------

    def _with_values(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...],
        meta: int, real: int, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> tuple[bool, Any]:  # fmt: skip
        """Run an op whose tensors all have values, if its results are small. (False, None) otherwise."""
        if meta:
            if info.base == "masked_select" and real == 1 and not args[1].is_meta:
                self.syncs += 1
                chosen = int(args[1].expand(torch.broadcast_shapes(args[0].shape, args[1].shape)).sum())
                spec = layout.dense((chosen,), inputs[0].dtype)
                return True, self._make(info, inputs, plain, (spec,), True)
            if info.base == "_pack_padded_sequence" and real == 1:
                return True, self._pack(func, info, inputs, plain, *args)
            return False, None
        if real == 0:  # a factory
            if not info.takes_device:
                return False, None
            result = func(*args, **{**kwargs, "device": "meta", "pin_memory": None})
            floating = result.dtype.is_floating_point or result.dtype.is_complex
            constant = self.floats and info.base in _CONSTANTS
            limit = CONCRETE_ELEMENTS if not floating else CONCRETE_FLOATS if constant else -1
            if result.numel() > limit:
                return True, self._made(info, inputs, plain, result)
            result = func(*args, **{**kwargs, "device": "cpu", "pin_memory": None})
            self.undo.made(result, ())
            return True, self._made(info, inputs, plain, result)
        if any(not isinstance(t, Tensor) or not keeps_values(t, self.floats) for t in tensors_in(args, kwargs)):
            return False, None
        if info.pointwise and layout.numel_broadcast(inputs) > CONCRETE_ELEMENTS:
            return False, None
        if info.base in _GROWING:
            return False, None
        if info.takes_device:
            kwargs = {**kwargs, "device": "cpu" if kwargs.get("device") is None else kwargs["device"]}
            if torch.device(kwargs["device"]).type == "meta" or torch.device(kwargs["device"]).type != "cpu":
                return False, None
        self.syncs += info.base in COUNTS
        self.undo.before(func, args, kwargs)
        result = func(*args, **kwargs)
        self.undo.made(result, args)
        self._made(info, inputs, plain, result)
        if info.view or info.in_place:
            return True, result
        small = [
            meta_tensor(t) if isinstance(t, Tensor) and not keeps_values(t, self.floats) else t
            for t in as_sequence(result)
        ]
        return True, small[0] if isinstance(result, Tensor) else type(result)(small)

    def _is_unknown(self, tensor: Any) -> bool:
        if not isinstance(tensor, Tensor) or tensor.is_meta or tensor.layout is not torch.strided:
            return False
        return id(tensor.untyped_storage()) in self._unknown

    def _pack(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...],
        padded: Tensor, lengths: Tensor, batch_first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Pack a padded batch whose lengths are known; the batch sizes keep their values for recurrent layers."""
        rows, sizes = func(torch.zeros(*padded.shape[:2], 1), lengths, batch_first)
        spec = layout.dense((rows.shape[0], *padded.shape[2:]), inputs[0].dtype)
        packed: Tensor = self._make(info, inputs, plain, (spec,), True)
        return packed, sizes

    def _read(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], meta: int,
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        if meta and inputs and inputs[0].dtype == "bool" and _asked_by_torch():
            # nn.TransformerEncoder asks whether a mask is causal: only a hint, and "no" is always correct.
            self.syncs += 1
            self.record(info.name, inputs, (), plain)
            return False
        if meta:
            raise ValueUnknown(
                f"{describe_layer(self.layers.current)} reads a tensor's value ({info.name}: .item(), bool(), int() or "
                "float() of a tensor), which is only known when the step runs"
            )
        self.syncs += 1
        result = func(*args, **kwargs)
        self.record(info.name, inputs, (), plain)
        return result


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


def _empty(spec: TensorSpec) -> Tensor:
    return torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device="meta")
