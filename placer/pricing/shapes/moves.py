"""Shapes of ops that move rows by index, of updates, of ops that move nothing, and of those without a formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import ITEM, ONE_PIECE, Cut, Shape, Work, cut, is_index, largest

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall, TensorSpec

#: Elements from which on torch moves and adds whole rows. In narrower rows each element is handled alone
#: (``can_use_expanded_index_path`` in ATen/native/TensorAdvancedIndexing.cpp).
_WIDE_ROW = 16
#: Ops inside the update of one parameter tensor: Adam's loop has about a dozen.
OPS_IN_UPDATE = 12
#: Kernels of the update of one tensor that an accelerator updates alone: 64 tensors of Rprop take 5 to 9 ms on an H200,
#: where Adam's take 0.6 ms together and 5.8 ms one by one.
_KERNELS_ALONE = 12.0
#: What momentum and weight decay add to a list's ops and passes, where they are an option.
_MOMENTUM, _WEIGHT_DECAY = (2, 5), (1, 3)
#: Tensors that one launch of such a kernel takes at the most, with five lists of operands (``depth_to_max_tensors`` in
#: ATen/native/cuda/MultiTensorApply.cuh).
TENSORS_PER_LAUNCH = 210
#: What follows the name of an update in one kernel.
FUSED = ".fused"


@dataclass(frozen=True, slots=True)
class View(Shape):
    """Nothing is moved: another view of the same memory. Reading one number is no data worth counting either."""

    def traffic(self, call: OpCall) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Other(Shape):
    """Operands of which no more is known than how large they are."""

    SHARED: ClassVar[tuple[str, ...]] = ("inputs",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("outputs",)
    WALK: ClassVar[tuple[str, ...]] = ("inputs", "outputs", "", "", "", "")

    #: Elements of the largest operand, and of the largest result.
    inputs: float
    outputs: float

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        return cls(largest(call.inputs), largest(call.outputs))

    @property
    def flops(self) -> float:
        """One for each element: too few for most of these ops, and a lower bound."""
        return float(max(self.inputs, self.outputs))

    def cut(self, work: Work) -> Cut:
        """By torch's grain, where the table has the op: of others nothing is known."""
        return Cut(cut(work.bytes / (2.0 * ITEM))) if work.effort is not None else ONE_PIECE


@dataclass(frozen=True, slots=True)
class Index(Shape):
    """Rows or elements that are read or written by number."""

    SHARED: ClassVar[tuple[str, ...]] = ("moved", "indices")
    WALK: ClassVar[tuple[str, ...]] = ("moved", "table", "width", "", "expanded", "in_place")

    #: Elements read or written by index, and elements of the table.
    moved: float
    table: float
    #: Distinct indices: one that is broadcast over a row counts once.
    indices: float
    #: Elements per index.
    width: float
    #: The table is overwritten.
    in_place: bool
    #: One index per row, broadcast over its elements: kernels move whole rows.
    expanded: bool
    #: Rows that are moved as a whole: 16 elements or more, indexed along the first dimension.
    wide: bool
    #: A reduction that leaves out the former values, and so overwrites them first.
    renewed: bool
    #: Bytes that the call reads and writes.
    bytes: float = 0.0

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        moved, table, indices = _indexed(call, op)
        width = max(moved / max(indices, 1.0), 1.0)
        return cls(
            moved,
            table,
            indices,
            width,
            call.in_place,
            expanded=any(0 in t.stride for t in call.inputs if is_index(t)),
            wide=width >= _WIDE_ROW and _moves_rows(call, op),
            renewed="renews" in op.traits and call.args[-1:] == (False,),
            bytes=_rows_bytes(call, op, moved, table),
        )

    def traffic(self, call: OpCall) -> float:
        return self.bytes

    def cut(self, work: Work) -> Cut:
        """Rows that are added up are put in order by their numbers first, in several regions whatever their size."""
        traits = work.row.traits
        if "bags" in traits and work.effort is not None:
            return Cut(work.effort.starts, always=work.effort.starts > 1.0)
        ordered = "adds" in traits and self.wide
        return Cut(cut(self.moved), 6.0 if ordered else 1.0, always=ordered)


def _indexed(call: OpCall, op: Op) -> tuple[float, float, float]:
    """(Elements moved, elements of the table, distinct indices) of a call."""
    index: TensorSpec | None
    if "along" in op.traits and len(call.inputs) > 1:  # their tables may hold integers too
        index, values = call.inputs[1], [t.numel for t in (call.inputs[0], *call.inputs[2:])]
    else:
        index = max((t for t in call.inputs if is_index(t)), key=attrgetter("numel"), default=None)
        values = [t.numel for t in call.inputs if not is_index(t)]
    indices = index.stored_bytes / index.item_bytes if index is not None else 1.0
    out = largest(call.outputs)
    if "reads_rows" in op.traits:
        return float(out), float(max(values, default=0)), indices
    if "puts_elements" in op.traits and index is not None:  # a number that is put everywhere is no operand
        return float(index.numel), float(out), indices
    written = max(values[1:], default=values[0] if values else 0)
    return float(written), float(out), indices


def _moves_rows(call: OpCall, op: Op) -> bool:
    """Whether torch moves whole rows: elements of one index are adjacent, as the first dimension is indexed."""
    table, *others = call.inputs
    if "overwrites" in op.traits:
        return False
    if "lists" in op.traits:
        picked = max((t.shape for t in others), key=len, default=())
        return call.outputs[0].shape[: len(picked)] == picked
    dimension = call.args[0] if call.args and type(call.args[0]) is int else 0
    return not table.shape or "along" not in op.traits or dimension % len(table.shape) == 0


def _rows_bytes(call: OpCall, op: Op, moved: float, table: float) -> float:
    """Rows read and written (read twice where they are added up), the indices, and a table that is made or copied."""
    reads = "reads_rows" in op.traits
    made = 0.0 if reads or call.in_place else 8.0 * table
    return 4.0 * (2.0 if reads else 3.0) * moved + made + sum(t.stored_bytes for t in call.inputs if is_index(t))


@dataclass(frozen=True, slots=True)
class Update(Shape):
    """The update of one parameter tensor.

    The CPU updates one tensor after the other. An accelerator updates all of them together: op by op, each over the
    list of all tensors (``foreach``, torch's default there), or in one kernel that does everything (``fused``).
    """

    FLOPS_EACH: ClassVar[float] = 12.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "tensors", "", "", "", "fused")

    #: Elements of the parameter.
    numel: float
    #: Parameter tensors that the step updates.
    tensors: float
    momentum: bool
    weight_decay: bool
    #: One kernel does the whole update.
    fused: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        """``tensors`` is 1 here; ``describe`` fills in how many the step updates."""
        chosen = settings(call)
        flags = (bool(chosen.get(name)) for name in ("momentum", "weight_decay", "fused"))
        return cls(call.inputs[0].numel, 1, *flags)

    @property
    def ops_inside(self) -> int:
        return OPS_IN_UPDATE

    def cut(self, work: Work) -> Cut:
        return Cut(cut(self.numel), 0.75 * OPS_IN_UPDATE)

    def launches(self, work: Work) -> float:
        """One tensor's share of the kernels that update all."""
        if work.effort is not None and work.updated_alone:
            return work.effort.kernels
        ops = 1.0 if self.fused else self.listed(work.row)[0]
        tensors = max(self.tensors, 1.0)
        return ops * math.ceil(tensors / TENSORS_PER_LAUNCH) / tensors

    def listed(self, op: Op) -> tuple[float, float]:
        """(Ops over the list of all tensors, bytes they move over those of one tensor's update)."""
        ops, passes = op.list_kernels, op.list_passes
        decay_is_extra = self.weight_decay and "decays" not in op.traits
        for added, is_on in ((_MOMENTUM, self.momentum), (_WEIGHT_DECAY, decay_is_extra)):
            ops, passes = (ops + added[0], passes + added[1]) if is_on else (ops, passes)
        return ops, passes / op.passes


def settings(call: OpCall) -> dict[object, object]:
    """The optimizer's settings by name, as its update was traced."""
    return {a[0]: a[1] for a in call.args if isinstance(a, tuple) and len(a) == 2}


def kernels_of_update(call: OpCall, op: Op) -> float:
    """Kernels that follow each other in the update of one tensor, where it is updated alone; else 1."""
    alone = "alone" in op.traits or ("foreach", False) in call.args
    return _KERNELS_ALONE if alone and ("fused", True) not in call.args else 1.0
