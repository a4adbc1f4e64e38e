"""The data of one traced step: tensor specs, op calls, memory events and the trace that holds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar

from placer.lazy import cached_property

#: (values read, values written) of one call, by number. A value is what one call left in one tensor's memory; views of
#: it are the same value, and a write in place makes a new one.
Connection = tuple[tuple[int, ...], tuple[int, ...]]
Phase = Literal["forward", "loss", "backward", "optimizer"]
_T = TypeVar("_T")

#: Bytes per element by dtype name, as ``str(torch.float32)`` prints it without the ``torch.`` prefix.
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
#: Bytes that memory transfers at once, however few of them are read.
CACHE_LINE = 64


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides (both in elements) and dtype of one tensor. What follows from them is computed once."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorSpec, (self.shape, self.stride, self.dtype)

    @cached_property
    def numel(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def item_bytes(self) -> int:
        return ITEM_BYTES.get(self.dtype, 4)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of distinct memory behind the tensor: a broadcast dimension (stride 0) is stored once."""
        return self.item_bytes * math.prod(n for n, s in zip(self.shape, self.stride, strict=True) if s != 0 or n == 0)

    @cached_property
    def touched_bytes(self) -> int:
        """Bytes of memory that reading the tensor moves: elements that lie apart bring the rest of their lines."""
        gap = min((s for n, s in zip(self.shape, self.stride, strict=True) if n > 1 and s > 0), default=1)
        each = max(min(gap * self.item_bytes, CACHE_LINE), self.item_bytes)
        return self.stored_bytes // self.item_bytes * each

    @cached_property
    def contiguous(self) -> bool:
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if n == 1:
                continue
            if s != expected:
                return False
            expected *= n
        return True


class OpCall(NamedTuple):
    """One operator call of a step.

    ``op`` is the dispatcher's name without the overload (``aten::addmm``), or the name of a fused op: the public name
    the profiler shows (``aten::lstm``, ``aten::scaled_dot_product_attention``), with ``_backward`` appended for
    its gradient, or ``optimizer::Adam`` for the update of one parameter tensor (then ``inputs`` holds that parameter,
    or the rows of it that a sparse gradient updates). ``args`` are the call's non-tensor arguments, flattened to
    something hashable, in the order of the op's schema.
    """

    op: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    args: tuple[Hashable, ...] = ()
    phase: Phase = "forward"
    #: Path of the module that made the call; "" outside all modules.
    layer: str = ""
    #: The outputs share memory with an input: a view, or an in-place write.
    view: bool = False
    in_place: bool = False
    #: Bytes of outputs that outlive their phase (activations kept for backward, gradients).
    kept_bytes: int = 0
    #: Times that the host waits for the device in this call, or since the call before (``.item()``, ``nonzero``).
    syncs: int = 0


class MemoryEvent(NamedTuple):
    """Memory allocated or freed during a step: ``nbytes`` bytes for ``buffer`` by call number ``call``.

    With ``nbytes`` 0 the buffer is freed before call number ``call``. Buffers never freed (gradients, what the step
    returns) live until the next step begins.
    """

    call: int
    buffer: int
    nbytes: int


@dataclass(frozen=True)
class Trace:
    """The ordered op calls of one step, and the totals a single op does not show. All counts are per step."""

    calls: tuple[OpCall, ...]
    mode: Literal["train", "infer"]
    #: One entry per distinct parameter / buffer tensor (tied weights once).
    parameters: tuple[TensorSpec, ...]
    buffers: tuple[TensorSpec, ...]
    #: Tensors copied to the device every step, and those an inference step copies back.
    batch: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    optimizer: str | None = None
    #: Most bytes of activations, gradients and workspaces alive at once, parameters and optimizer state excluded.
    peak_activation_bytes: int = 0
    optimizer_state_bytes: int = 0
    #: Numbers of the parameters whose gradients are sparse: they take next to no memory.
    sparse_gradients: tuple[int, ...] = ()
    #: ``nn.Module.__call__`` entries, and autograd nodes run by backward.
    module_calls: int = 0
    autograd_nodes: int = 0
    #: Python functions entered in forward and loss, ``nn.Module``'s own included.
    python_calls: int = 0
    #: Python functions that the loop around the step enters besides (see ``placer.Part``).
    loop_calls: int = 0
    #: How many of the step's own find their code evicted from a core's own caches, by reuse distance (LRU stack
    #: distance, Mattson et al. 1970): the number of different other functions entered since their last entry.
    evicted_calls: float = 0.0
    #: Calls that make the host wait for the device (``.item()``, ``nonzero``, a copy to the host).
    syncs: int = 0
    #: Allocations and frees of the step's tensors, in order.
    memory: tuple[MemoryEvent, ...] = ()
    #: The mode of ``torch.compile`` that model and backward pass run in (``"default"``, ``"reduce-overhead"``, ...);
    #: None for an eager step. The calls are those of the eager step.
    compiled: str | None = None
    #: Where they are followed (of a compiled step, and of one on two devices), the values that each call reads and
    #: writes (see ``dataflow``), and those of ``batch`` and ``outputs``.
    dataflow: tuple[Connection, ...] = field(default=(), repr=False, hash=False)
    batch_values: tuple[int, ...] = field(default=(), repr=False, hash=False)
    output_values: tuple[int, ...] = field(default=(), repr=False, hash=False)
    #: Whether the step was traced by running it, on tensors with values.
    real: bool = False
    #: Of an optimizer whose step evaluates the model as often as it needs to: the least, the usual and the most times.
    #: The trace is that of the usual number.
    evaluations: tuple[int, int, int] | None = None
    #: What the tracer left out or guessed, in words for the reader of an explanation.
    notes: tuple[str, ...] = field(default_factory=tuple)
    #: Traces of the same step for the kinds of devices that run other ops than this one's (``cuda``).
    others: Mapping[str, Trace] = field(default_factory=dict, hash=False)

    def on(self, device: str) -> Trace:
        """The trace of the step as ``device`` (``cuda:1``) runs it."""
        return self.others.get(device.partition(":")[0], self)

    @cached_property
    def weight_sizes(self) -> tuple[int, ...]:
        """Bytes of each parameter, then of each buffer."""
        return tuple(t.stored_bytes for t in (*self.parameters, *self.buffers))

    @cached_property
    def parameter_bytes(self) -> int:
        return sum(p.stored_bytes for p in self.parameters)

    @cached_property
    def buffer_bytes(self) -> int:
        return sum(b.stored_bytes for b in self.buffers)

    @cached_property
    def batch_bytes(self) -> int:
        return sum(b.stored_bytes for b in self.batch)

    @cached_property
    def peak_bytes(self) -> int:
        """Parameters, their gradients, optimizer state, buffers, batch and activations at the worst moment."""
        sparse = sum(self.parameters[n].stored_bytes for n in self.sparse_gradients)
        gradients = self.parameter_bytes - sparse if self.mode == "train" else 0
        return (
            self.parameter_bytes + self.buffer_bytes + gradients + self.optimizer_state_bytes
            + self.batch_bytes + self.peak_activation_bytes
        )  # fmt: skip


def once_per_trace(found_in: Callable[[Trace], _T]) -> Callable[[Trace], _T]:
    """``found_in``, asked once of each trace, which keeps the answer: what follows from a step whatever prices it.

    The answer must not be changed. A trace that ``dataclasses.replace`` makes of another begins without any.
    """
    name = f"{found_in.__module__}.{found_in.__qualname__}"

    @wraps(found_in)
    def answer(trace: Trace) -> _T:
        kept: dict[str, _T] = trace.__dict__  # as ``cached_property`` keeps its value
        if name not in kept:
            kept[name] = found_in(trace)
        return kept[name]

    return answer
