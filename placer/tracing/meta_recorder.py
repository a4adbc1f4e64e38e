"""Records the ops of a step on meta tensors, and runs for real only what small tensors with values need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from placer.tracing import layout, shape_inference, values
from placer.tracing.attempt import ValueUnknown
from placer.tracing.layers import Layers, describe_layer
from placer.tracing.operators import (
    CHECKS,
    COUNTS,
    MASKED_INDEXING,
    READS,
    Operator,
    as_sequence,
    flatten,
    mask_to_indices,
    on_meta,
    operator,
    tensors_in,
    to_meta,
)  # fmt: skip
from placer.tracing.recorder import Recorder, meta_like
from placer.tracing.shape_inference import Specs
from placer.tracing.trace_data import TensorSpec
from placer.tracing.values import KnownValues

_DETACH = torch.ops.aten.detach.default
_ONE_DRAW = "the step draws numbers and reads values: this is what one draw runs, another may run more or less"


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
        self._drew = self._read_after_draw = False

    @property
    def notes(self) -> tuple[str, ...]:
        return (_ONE_DRAW,) if self._read_after_draw else ()

    # --- dispatch -----------------------------------------------------------------------------------------------------

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is _DETACH and args[0].is_meta:  # no call of a step (see ``CallLog.record``)
            return func(*args)
        info = operator(func)
        self.last_op = info.name
        if info.base in CHECKS:
            self.syncs += 1
        slots, plain, meta, real = flatten(info, args, kwargs)
        inputs = tuple([s for s in slots if type(s) is TensorSpec])
        if real and self.values.any_lost:
            lost = sum(map(self.values.is_lost, tensors_in(args, kwargs)))
            meta, real = meta + lost, real - lost
        if info.name in READS:
            return self._read(func, info, inputs, plain, meta, args, kwargs)
        if real or not meta:
            handled, result = self._with_values(func, info, inputs, plain, meta, real, args, kwargs)
            if handled:
                return result
            if real and meta and not self.values.any_lost and info.base.rstrip("_") in MASKED_INDEXING:
                args, self.syncs = mask_to_indices(args, self.syncs)
                slots, plain, _, _ = flatten(info, args, kwargs)
                inputs = tuple([s for s in slots if type(s) is TensorSpec])
        if info.returns_self and _fits(inputs):
            result = args[0] if args else kwargs["self"]
            self.values.lose(result)
            self.log.record(info.name, inputs, (layout.spec_of(result),), plain, False, True)
            return result
        # What is known of an op on dense tensors of these shapes does not hold for sparse ones.
        sparse = self.saw_sparse and any(map(_is_sparse, tensors_in(args, kwargs)))
        if sparse and info.base == "clone":  # the meta kernel forgets how many rows there are
            self.log.record(info.name, inputs, inputs, plain)
            return args[0]
        functional = info.functional and not sparse
        if functional:
            known = shape_inference.look_up(func, info, slots, plain, args, kwargs)
            if known is not None:
                return self._make(info, inputs, plain, *known)
        written = [args[at] if at < len(args) else kwargs.get(name) for at, name in info.writes]
        for tensor in tensors_in(tuple(written), {}):
            self.values.lose(tensor)
        result = func(*to_meta(args), **to_meta(on_meta(info, kwargs)))
        if functional:
            known = shape_inference.specs_of(result)
            if known is not None:
                shape_inference.remember(func, slots, plain, known)
        return self._made(info, inputs, plain, result)

    def _make(
        self, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], specs: Specs, bare: bool
    ) -> Any:
        """Record a functional op whose output specs are known, and build the outputs."""
        self.log.record(info.name, inputs, tuple([s for s in specs if s is not None]), plain)
        number = len(self.log) - 1
        results: list[Tensor | None] = []
        for spec in specs:
            if spec is None:
                results.append(None)
                continue
            tensor = meta_like(spec)
            self.log.liveness.track(tensor, number, spec.stored_bytes)
            results.append(tensor)
        return results[0] if bare else tuple(results)

    def _read(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], meta: int,
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        """Give a value to Python, if it is known."""
        if meta and inputs and inputs[0].dtype == "bool" and _asked_by_torch():
            # nn.TransformerEncoder asks whether a mask is causal: only a hint, and "no" is always correct.
            self.syncs += 1
            self.log.record(info.name, inputs, (), plain)
            return False
        if meta:
            raise ValueUnknown(
                f"{describe_layer(self.layers.current)} reads a tensor's value ({info.name}: .item(), bool(), int() or "
                "float() of a tensor), which is only known when the step runs"
            )
        self.syncs += 1
        self._read_after_draw |= self._drew
        result = func(*args, **kwargs)
        self.log.record(info.name, inputs, (), plain)
        return result

    # --- tensors with known values ------------------------------------------------------------------------------------

    def _with_values(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...],
        meta: int, real: int, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> tuple[bool, Any]:  # fmt: skip
        """Run an op whose tensors all have values, if its results are small. (False, None) otherwise."""
        if meta:
            return self._with_some_values(func, info, inputs, plain, real, args)
        if real == 0:
            return self._factory(func, info, inputs, plain, args, kwargs)
        if not self.values.can_run(info, inputs, tensors_in(args, kwargs)):
            return False, None
        if info.takes_device:
            kwargs = {**kwargs, "device": "cpu" if kwargs.get("device") is None else kwargs["device"]}
            if torch.device(kwargs["device"]).type != "cpu":
                return False, None
        self.syncs += info.base in COUNTS
        result = self._run(func, args, kwargs)
        self._made(info, inputs, plain, result)
        if info.view or info.in_place:
            return True, result
        small = [t if self.values.keeps(t) or not isinstance(t, Tensor) else values.meta_like(t)
                 for t in as_sequence(result)]  # fmt: skip
        return True, small[0] if isinstance(result, Tensor) else type(result)(small)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op for real."""
        self._drew |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **kwargs)

    def _with_some_values(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...], real: int,
        args: tuple[Any, ...],
    ) -> tuple[bool, Any]:  # fmt: skip
        """Ops on meta tensors whose output shape follows from the values of another argument."""
        if info.base == "masked_select" and real == 1 and not args[1].is_meta:
            self.syncs += 1
            chosen = int(args[1].expand(torch.broadcast_shapes(args[0].shape, args[1].shape)).sum())
            spec = layout.dense((chosen,), inputs[0].dtype)
            return True, self._make(info, inputs, plain, (spec,), True)
        if info.base == "_pack_padded_sequence" and real == 1:
            return True, self._pack(func, info, inputs, plain, *args)
        return False, None

    def _factory(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> tuple[bool, Any]:  # fmt: skip
        """An op without tensor arguments: its result has values where they may steer the step."""
        if not info.takes_device:
            return False, None
        result = func(*args, **{**kwargs, "device": "meta", "pin_memory": None})
        generator = kwargs.get("generator")
        if self.values.made_by(info, result) and (generator is None or generator.device.type == "cpu"):
            result = self._run(func, args, {**kwargs, "device": "cpu", "pin_memory": None})
        return True, self._made(info, inputs, plain, result)

    def _pack(
        self, func: Any, info: Operator, inputs: tuple[TensorSpec, ...], plain: tuple[Hashable, ...],
        padded: Tensor, lengths: Tensor, batch_first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Pack a padded batch whose lengths are known; the batch sizes keep their values for recurrent layers."""
        rows, sizes = func(torch.zeros(*padded.shape[:2], 1), lengths, batch_first)
        spec = layout.dense((rows.shape[0], *padded.shape[2:]), inputs[0].dtype)
        packed: Tensor = self._make(info, inputs, plain, (spec,), True)
        return packed, sizes

    # --- what others ask ----------------------------------------------------------------------------------------------

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        return tuple(self.fresh(spec) for spec in specs)

    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        return self.results(specs), None

    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        return tuple(None if spec is None else self.fresh(spec) for spec in wanted)

    def on_device(self, tensor: Tensor) -> bool:
        return tensor.is_meta

    def skipped_functions(self, count: int) -> None:
        self.python_calls.count += count


#: Whose frames stand between an op and the code that called for it.
_BETWEEN = ("placer.tracing.", "torch.utils.", "torch._")


def _asked_by_torch() -> bool:
    """Whether the Python code that reads the value is one of PyTorch's own modules."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("torch.nn.")


def _is_sparse(tensor: Tensor) -> bool:
    return tensor.layout is not torch.strided


def _fits(inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether an in-place op obviously succeeds; otherwise the meta kernel decides."""
    shape = inputs[0].shape
    return all(i.shape == shape or not i.shape for i in inputs[1:])
