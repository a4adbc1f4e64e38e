"""Records a step while it really runs: for steps that read values, which meta tensors do not have.

Every op runs on real tensors and is recorded as the meta recorder records it, so both give a network the same trace. A
fused op runs unrecorded inside its one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from placer.nest import distinct, map_nest
from placer.tracing import layout
from placer.tracing.operators import CHECKS, COUNTS, MASKED_INDEXING, READS, flatten, mask_to_indices, operator
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import TensorSpec
from placer.tracing.values import keeps_values

_CPU = torch.device("cpu")


class RealRecorder(Recorder):
    """Runs what it records, on the CPU."""

    real = True
    argument_device = "cpu"

    def on_device(self, tensor: Tensor) -> bool:
        return not keeps_values(tensor)  # the host knows small integer tensors, as in a trace on meta tensors

    def skipped_functions(self, count: int) -> None:
        """None: the step really runs."""

    # --- dispatch -----------------------------------------------------------------------------------------------------

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        info = operator(func)
        self.last_op = info.name
        if info.base.rstrip("_") in MASKED_INDEXING:
            args, self.syncs = mask_to_indices(args, self.syncs)
        self.syncs += info.name in READS or info.base in COUNTS or info.base in CHECKS
        slots, plain, _, _ = flatten(info, args, kwargs)
        inputs = tuple([s for s in slots if type(s) is TensorSpec])
        result = func(*args, **kwargs)
        return self._made(info, inputs, plain, result)

    # --- fused ops ----------------------------------------------------------------------------------------------------

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        paused, self.layers.paused = self.layers.paused, True
        try:
            with self.recording(False), torch._C.DisableTorchFunction(), torch.no_grad():
                return self._outputs(specs, (compute or self.original)())
        finally:
            self.layers.paused = paused

    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        if not any(needed):
            return self.results(specs), None
        original = self.original
        inputs: list[Any] = []
        with self.recording(False), torch._C.DisableTorchFunction(), torch.enable_grad():
            stand_ins: dict[int, Any] = {}
            anchor = torch.zeros((), requires_grad=True)
            for tensor, wanted in zip(tensors, needed, strict=True):
                if wanted and tensor is not None and id(tensor) not in stand_ins:
                    stand_in = stand_ins[id(tensor)] = _Source.apply(anchor, [tensor])  # type: ignore[no-untyped-call]
                    inputs.append(get_gradient_edge(stand_in))
                else:
                    inputs.append(None)
                    if tensor is not None and id(tensor) not in stand_ins:
                        stand_ins[id(tensor)] = tensor.detach()
            args, kwargs = map_nest(lambda t: stand_ins.get(id(t), t), (list(original.args), original.keywords))
            result = original.func(*args, **kwargs)
            made = distinct(result)
            edges = [get_gradient_edge(t) if t.requires_grad else None for t in made]
            held = torch.empty(0)
            held.placer_edges = (inputs, edges)  # type: ignore[attr-defined]
            return self._outputs(specs, result), held

    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        assert held is not None  # a backward pass comes only after ``evaluate`` with something needed
        sources, edges = held.placer_edges  # type: ignore[attr-defined]
        with self.recording(False), torch._C.DisableTorchFunction():
            given = [(e, g) for e, g in zip(edges, grads, strict=True) if e is not None and g is not None]
            asked = [e for e in sources if e is not None]
            found = iter(
                torch.autograd.grad(
                    [e for e, _ in given], asked, [g for _, g in given], retain_graph=True, allow_unused=True
                )
                if given and asked
                else [None] * len(asked)
            )
            results: list[Tensor | None] = []
            for spec, source in zip(wanted, sources, strict=True):
                value = None if source is None else next(found)
                # A tensor given twice has no second gradient: the first one is the sum.
                results.append(None if spec is None else self._laid_out(value, spec))
            del found
            return tuple(results)

    def _outputs(self, specs: Sequence[TensorSpec], result: Any) -> tuple[Tensor, ...]:
        made = distinct(result)
        return tuple(self._laid_out(tensor.detach(), spec) for tensor, spec in zip(made, specs, strict=False))

    def _laid_out(self, tensor: Tensor | None, spec: TensorSpec) -> Tensor:
        """The tensor in memory of its own, with the strides the trace says."""
        if tensor is None or layout.spec_of(tensor) != spec or tensor.untyped_storage().nbytes() != spec.stored_bytes:
            fresh = torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device=_CPU)
            tensor = fresh.zero_() if tensor is None else fresh.copy_(tensor)
        self.log.liveness.track(tensor, len(self.log) - 1, spec.stored_bytes)
        return tensor


class _Source(torch.autograd.Function):
    """A stand-in for an input whose graph does not keep the input's memory alive."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, box: list[Tensor]) -> Tensor:
        return box[0].detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None
