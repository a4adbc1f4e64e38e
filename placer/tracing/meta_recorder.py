"""Records every op call of a step and answers it with meta tensors."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

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
from placer.tracing.formulas import Specs
from placer.tracing.python_calls import Uncounted
from placer.tracing.schema import Operator, operator
from placer.tracing.step_log import StepLog, empty
from placer.tracing.trace_data import TensorSpec
from placer.tracing.unfollowed import ValueUnknown, describe_layer

#: Bookkeeping of the profiler and of the dispatcher: no work of the step.
_UNSEEN = frozenset({"profiler", "prim"})
#: Ops on tensors with values run for real only while their result stays small, and these may grow it.
_GROWING = frozenset({"mm", "bmm", "repeat", "repeat_interleave", "outer", "cartesian_prod"})


#: Factories of floating point values a step may read. Empty and zero tensors are there to be written to.
_CONSTANTS = frozenset({"arange", "linspace", "logspace", "full", "scalar_tensor", "ones"})


class Recorder(StepLog):
    """Use as a context manager; set ``phase`` as the step moves on, then read ``op_calls()``.

    Tensors are meta, except small integer ones, which keep their values: an op whose tensors all have values runs for
    real.
    """

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
            tensor = empty(spec)
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
