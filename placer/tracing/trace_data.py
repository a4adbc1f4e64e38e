"""The data of one traced step: tensor specs, op calls and the trace that holds them.

The specs of tensors, and of what ops make of them, with the strides that PyTorch gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch

from placer.lazy import cached_property

#: (values read, values written) of one call, by number. A value is what one call left in one tensor's memory; views of
#: it are the same value, and a write in place makes a new one.
Connection = tuple[tuple[int, ...], tuple[int, ...]]
#: Shape and strides.
Layout = tuple[tuple[int, ...], tuple[int, ...]]
Phase = Literal["forward", "loss", "backward", "optimizer"]
_T = TypeVar("_T")

#: Bytes per element by dtype name, as ``str(torch.float32)`` prints it without the ``torch.`` prefix.
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16, "complex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
}  # fmt: skip
#: The kind of device that stands for all but the CPU.
ACCELERATORS = "accelerators"
#: The class name of an optimizer, and a flag that it was made with (``fused``).
OptimizerFlag = tuple[str, str]
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
        bytes_per_element = max(min(gap * self.item_bytes, CACHE_LINE), self.item_bytes)
        return self.stored_bytes // self.item_bytes * bytes_per_element

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


class MissingKernel(NamedTuple):
    """An op that a kind of device has no kernel for: none at all, or none for ``dtype``. ``layer`` calls it."""

    op: str
    dtype: str
    layer: str


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
    #: The names of the optimizers that step, each with a flag that not every device has an update for.
    optimizer_flags: tuple[OptimizerFlag, ...] = ()
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
    #: The mode of ``torch.compile`` that model and backward pass run in (``"default"``, ``"reduce-overhead"``, ...);
    #: None for an eager step. The calls are those of the eager step.
    compiled: str | None = None
    #: Of a compiled step, the values that each call reads and writes, and those of ``outputs``.
    dataflow: tuple[Connection, ...] = field(default=(), repr=False, hash=False)
    output_values: tuple[int, ...] = field(default=(), repr=False, hash=False)
    #: Whether the step was traced by running it, on tensors with values.
    real: bool = False
    #: Of an optimizer whose step evaluates the model as often as it needs to: the least, the usual and the most times.
    #: The trace is that of the usual number.
    evaluations: tuple[int, int, int] | None = None
    #: The first op that the CPU has no kernel for. A step that ran has none.
    missing_on_cpu: MissingKernel | None = None
    #: What the tracer left out or guessed, in words for the reader of an explanation.
    notes: tuple[str, ...] = field(default_factory=tuple)
    #: Traces of the same step for the kinds of devices that run other ops than this one's (``cuda``), and under
    #: ``ACCELERATORS`` for all kinds but the CPU that have none of their own.
    others: Mapping[str, Trace] = field(default_factory=dict, hash=False)
    #: What ``once_per_trace`` has found of this trace, by the name of the function.
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def on(self, device: str) -> Trace:
        """The trace of the step as ``device`` (``cuda:1``) runs it."""
        kind = device.partition(":")[0]
        return self.others.get(kind) or (self if kind == "cpu" else self.others.get(ACCELERATORS, self))

    def everywhere(self, change: Callable[[Trace], Trace]) -> Trace:
        """This trace and those for other kinds of devices, each changed alike."""
        return replace(change(self), others={kind: change(other) for kind, other in self.others.items()})

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
            self.parameter_bytes
            + self.buffer_bytes
            + gradients
            + self.optimizer_state_bytes
            + self.batch_bytes
            + self.peak_activation_bytes
        )


def once_per_trace(find: Callable[[Trace], _T]) -> Callable[[Trace], _T]:
    """``find``, asked once of each trace, which keeps the answer: what follows from a step whatever prices it.

    The answer must not be changed.
    """
    name = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def answer(trace: Trace) -> _T:
        if name not in trace.derived:
            trace.derived[name] = find(trace)
        return cast(_T, trace.derived[name])

    return answer


# --- specs of tensors -------------------------------------------------------------------------------------------------

_DTYPE_NAMES: dict[torch.dtype, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        name = _DTYPE_NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name


_INTERNED = 50_000
_specs: dict[Hashable, TensorSpec] = {}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The interned spec of a tensor.

    A sparse tensor of whole rows, such as an embedding's gradient, counts as those rows; any other as its dense shape.
    A nested tensor counts as all its rows.
    """
    if tensor.is_nested:
        return _spec_of_nested(tensor)
    if tensor.layout is not torch.strided:
        rows = tensor.layout is torch.sparse_coo and tensor.dense_dim() > 0
        shape = (tensor._nnz(), *tensor.shape[tensor.sparse_dim() :]) if rows else tuple(tensor.shape)
        return make_spec(shape, contiguous_strides(shape), dtype_name(tensor.dtype))
    key = (tensor.shape, tensor.stride(), tensor.dtype)
    spec = _specs.get(key)
    if spec is None:
        spec = _specs[key] = make_spec(*key[:2], dtype_name(tensor.dtype))
    return spec


def _spec_of_nested(tensor: torch.Tensor) -> TensorSpec:
    if tensor.layout is torch.jagged:
        return spec_of(cast(Any, tensor)._values)
    sizes = tensor._nested_tensor_size()
    rows, last = int(sizes[:, :-1].prod(1).sum()), int(sizes[:, -1].max())
    return dense((rows, last), dtype_name(tensor.dtype))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one block of memory with strides."""
    return tensor.layout is torch.strided and not tensor.is_nested


def same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are the same view of the same memory, whatever objects they are."""
    return (
        is_dense(left)
        and is_dense(right)
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
        and left.untyped_storage()._cdata == right.untyped_storage()._cdata
    )


def make_spec(shape: Sequence[int], stride: Sequence[int], dtype: str) -> TensorSpec:
    """The interned spec with these fields."""
    key = (shape, stride, dtype)
    spec = _specs.get(key)
    if spec is None:
        if len(_specs) > _INTERNED:
            _specs.clear()
        spec = TensorSpec(tuple(shape), tuple(stride), dtype)
        _specs[tuple(shape), tuple(stride), dtype] = spec
    return spec


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides (in elements) of a row-major tensor."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def dense(shape: Sequence[int], dtype: str) -> TensorSpec:
    """A contiguous tensor."""
    return make_spec(tuple(shape), contiguous_strides(shape), dtype)


def like(spec: TensorSpec) -> TensorSpec:
    """The spec ``empty_like`` with ``preserve_format`` gives."""
    return make_spec(*elementwise_layout([spec]), spec.dtype)


def elementwise_layout(operands: Sequence[TensorSpec]) -> Layout:
    """Shape and strides that PyTorch gives the output of an elementwise op on one, two or three operands.

    Raises RuntimeError, as PyTorch does, where they cannot be broadcast.
    """
    shape = operands[0].shape
    if all(o.shape == shape and o.contiguous for o in operands):
        return shape, contiguous_strides(shape)
    return _layout_by_torch(tuple([(o.shape, o.stride) for o in operands]))


@lru_cache(maxsize=4096)
def _layout_by_torch(operands: tuple[Layout, ...]) -> Layout:
    op: Any = (torch.neg, torch.add, torch.addcmul)[len(operands) - 1]
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        result = op(*[torch.empty_strided(shape, stride, device="meta") for shape, stride in operands])
    return tuple(result.shape), result.stride()


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether an NCHW tensor is stored as NHWC; dimensions of size 1 may have any stride."""
    if len(spec.shape) != 4:
        return False
    expected = channels_last_strides(spec.shape)
    return all(n == 1 or s == e for n, s, e in zip(spec.shape, spec.stride, expected, strict=True))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides (in elements) of an NCHW tensor stored as NHWC."""
    _, channels, height, width = (max(n, 1) for n in shape)
    return height * width * channels, 1, width * channels, channels


def broadcast_strides(operand: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of ``operand`` in a result of ``shape``: 0 along the dimensions it is repeated in."""
    missing = len(shape) - len(operand.shape)
    aligned = (
        0 if n == 1 and shape[missing + i] != 1 else s
        for i, (n, s) in enumerate(zip(operand.shape, operand.stride, strict=True))
    )
    return (0,) * missing + tuple(aligned)
