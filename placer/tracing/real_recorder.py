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

from placer import machine
from placer.errors import TraceError
from placer.tracing import layout, pytrees
from placer.tracing.known_values import keeps_values
from placer.tracing.layers import Layers
from placer.tracing.op_arguments import CHECKS, COUNTS, MASKED_INDEXING, READS, flatten, mask_to_indices
from placer.tracing.op_schema import operator
from placer.tracing.python_calls import Uncounted
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import TensorSpec
from placer.tracing.undo import Undo

#: The longest a real run of a step may take, in seconds.
LIMIT_SECONDS = 5.0
#: Free memory is looked at whenever a real run has made so many bytes of tensors.
_LOOK_EVERY = 2**28
#: The share of all memory that a real run leaves free, and at least what it may make before the next look.
_LEFT_FREE = 0.05

_CPU = torch.device("cpu")
_SETTERS = frozenset({"__set__", "requires_grad_", "detach_", "set_", "swap_tensors"})


class RealRecorder(Recorder):
    """Runs what it records. ``undo`` protects what the step writes and does not own, before the write.

    ``device`` is where the step's tensors are. Once ``limit_seconds`` of ``clock`` are over, or memory runs out, the
    next op raises TraceError.
    """

    real = True

    def __init__(
        self, layers: Layers, undo: Undo, clock: Callable[[], float], limit_seconds: float, device: torch.device = _CPU
    ) -> None:
        super().__init__(layers, undo)
        self.clock, self.limit_seconds = clock, limit_seconds
        self.device = device
        self.constructor_device = self.argument_device = "cpu" if device.type == "cpu" else None
        self._deadline = clock() + limit_seconds
        self._looked = 0

    def on_device(self, tensor: Tensor) -> bool:
        return not keeps_values(tensor)  # the host knows small integer tensors, as in a trace on meta tensors

    def changing(self, func: Any, args: tuple[Any, ...]) -> None:
        if getattr(func, "__name__", "") in _SETTERS and args and isinstance(args[0], Tensor):
            self.undo.tensor(args[0])

    def skipped_functions(self, count: int) -> None:
        """None: the step really runs."""

    def check_time(self) -> None:
        """Raise TraceError once the time is over."""
        if self.clock() > self._deadline:
            raise TraceError(
                f"the step can only be traced by running it once, and it takes longer than {self.limit_seconds:g} s "
                "here; give a smaller batch"
            )

    def check_memory(self) -> None:
        """Raise TraceError where another op could take the last of the memory: the system would end the process."""
        if self.log.liveness.made - self._looked < _LOOK_EVERY:
            return
        self._looked = self.log.liveness.made
        free, total = machine.memory("cpu")
        if free < max(_LEFT_FREE * total, _LOOK_EVERY):
            raise TraceError(
                f"the step can only be traced by running it once, and {free / 1e9:.1f} GB of memory are left; "
                "give a smaller batch"
            )

    # --- dispatch -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.check_time()
        self.check_memory()
        with Uncounted():
            self.undo.before(func, args, kwargs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.undo.made(result, (*args, *kwargs.values()))
        return result

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
            args, kwargs = pytrees.map_tensors(
                (list(original.args), original.keywords), lambda t: stand_ins.get(id(t), t), {}
            )
            result = original.func(*args, **kwargs)
            made = list(pytrees.tensors(result))
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
        made = list(pytrees.tensors(result))
        return tuple(self._laid_out(tensor.detach(), spec) for tensor, spec in zip(made, specs, strict=False))

    def _laid_out(self, tensor: Tensor | None, spec: TensorSpec) -> Tensor:
        """The tensor in memory of its own, with the strides the trace says."""
        if tensor is None or layout.spec_of(tensor) != spec or tensor.untyped_storage().nbytes() != spec.stored_bytes:
            fresh = torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device=self.device)
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
