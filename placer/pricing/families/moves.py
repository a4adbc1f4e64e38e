"""Ops that move rows by index, ops that move nothing (views), and those without a formula, none of which is free."""

from __future__ import annotations

from placer.pricing.families.family import GRAIN, Family, Features, aten
from placer.pricing.work import Work, is_index, largest
from placer.tracing import OpCall, TensorSpec

#: Ops that read rows of a table; the others write them.
_READS_ROWS = aten(
    "embedding index_select gather index take masked_select nonzero embedding_bag _embedding_bag "
    "_embedding_bag_forward_only"
)
#: Ops whose first argument is the dimension that is indexed.
_ALONG = frozenset(
    f"aten::{name}{in_place}"
    for name in ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
                 "index_fill")
    for in_place in ("", "_")
)  # fmt: skip
#: Ops that overwrite elements one by one: torch never moves whole rows there.
_OVERWRITES = aten("scatter scatter_")
_NUMBERS = frozenset(f"{op}.number" for op in _OVERWRITES)
#: Ops whose index says for each element where it goes.
_PUTS_ELEMENTS = _OVERWRITES | aten("scatter_add scatter_add_ scatter_reduce scatter_reduce_")
#: Elements from which on torch moves and adds whole rows. In narrower rows each element is handled alone
#: (``can_use_expanded_index_path`` in ATen/native/TensorAdvancedIndexing.cpp).
_WIDE_ROW = 16


def _read_indexing(call: OpCall) -> Features:
    """No FLOPs."""
    moved, table, indices = _indexed(call)
    expanded = any(0 in t.stride for t in call.inputs if is_index(t))
    width = max(moved / max(indices, 1.0), 1.0)
    wide = width >= _WIDE_ROW and _moves_rows(call)
    renewed = "scatter_reduce" in call.op and call.args[-1:] == (False,)
    flags = float(call.in_place), float(expanded), float(wide), float(renewed)
    return Features(0.0, (moved, table, indices, width), flags)


def _indexed(call: OpCall) -> tuple[float, float, float]:
    """(Elements moved, elements of the table, distinct indices) of a call."""
    index: TensorSpec | None
    if call.op in _ALONG and len(call.inputs) > 1:  # their tables may hold integers too
        index, values = call.inputs[1], [t.numel for t in (call.inputs[0], *call.inputs[2:])]
    else:
        index = max((t for t in call.inputs if is_index(t)), key=lambda t: t.numel, default=None)
        values = [t.numel for t in call.inputs if not is_index(t)]
    indices = index.stored_bytes / index.item_bytes if index is not None else 1.0
    out = largest(call.outputs)
    if call.op in _READS_ROWS:
        return float(out), float(max(values, default=0)), indices
    if call.op in _PUTS_ELEMENTS and index is not None:  # a number that is put everywhere is no operand
        return float(index.numel), float(out), indices
    written = max(values[1:], default=values[0] if values else 0)
    return float(written), float(out), indices


def _moves_rows(call: OpCall) -> bool:
    """Whether torch moves whole rows: elements of one index are adjacent, as the first dimension is indexed."""
    table, *others = call.inputs
    if call.op in _OVERWRITES:
        return False
    if call.op == "aten::index":
        picked = max((t.shape for t in others), key=len, default=())
        return call.outputs[0].shape[: len(picked)] == picked
    dimension = call.args[0] if call.args and type(call.args[0]) is int else 0
    return not table.shape or call.op not in _ALONG or dimension % len(table.shape) == 0


def _rows_bytes(call: OpCall) -> float:
    """Rows read and written (read twice where they are added up), the indices, and a table that is made or copied."""
    moved, table, _ = _indexed(call)
    passes = 2.0 if call.op in _READS_ROWS else 3.0
    made = 0.0 if call.op in _READS_ROWS or call.in_place else 8.0 * table
    return 4.0 * passes * moved + made + sum(t.stored_bytes for t in call.inputs if is_index(t))


def _count_indexing(work: Work, _threads: int) -> dict[str, float]:
    moved, table, indices = work.sizes[:3]
    wide, renewed = work.flags[2:4]
    # Elements that a number overwrites take twice as long as those of a tensor. Both go through
    # ``cpu_scatter_gather_base_kernel`` (ATen/native/cpu/ScatterGatherKernel.cpp).
    handled = 2.0 * moved if work.op in _NUMBERS else moved
    # Shared among cores, gradients of ``x[index]`` are added to a table that all write to, each in an atomic operation:
    # three times as long per element as on one (``cpu_atomic_add_float`` in ATen/native/cpu/IndexKernel.cpp).
    in_turns = work.op in ("aten::index_put", "aten::index_put.accumulate") and moved >= GRAIN
    return {
        "moved": handled,
        "moved_singly": 0.0 if wide else handled,  # one by one, not in whole rows
        "renewed": moved if renewed else 0.0,  # overwritten before the reduction
        "table": table,
        "indices": indices,
        "added_in_turns": moved if in_turns else 0.0,
    }


INDEXING = Family(
    name="indexing",
    ops=aten(
        "embedding embedding_dense_backward index_select gather scatter scatter_ scatter_add scatter_add_ index "
        "index_put index_put_ _index_put_impl_ index_add index_add_ scatter_reduce scatter_reduce_ index_copy "
        "index_copy_ take masked_select embedding_bag _embedding_bag _embedding_bag_forward_only "
        "_embedding_bag_backward _embedding_bag_dense_backward nonzero index_fill index_fill_ select_scatter "
        "slice_scatter select_backward slice_backward"
    ),
    sizes={
        "moved": "elements read or written by index",
        "table": "elements of the table",
        "indices": "distinct indices: one that is broadcast over a row counts once",
        "width": "elements per index",
    },
    flags={
        "in_place": "the table is overwritten",
        "expanded": "one index per row, broadcast over its elements: kernels move whole rows",
        "wide": "rows that are moved as a whole: 16 elements or more, indexed along the first dimension",
        "renewed": "a ``scatter_reduce`` that leaves out the former values, and so overwrites them first",
    },
    read=_read_indexing,
    moved_bytes=_rows_bytes,
    amounts=("moved", "moved_singly", "renewed", "table", "indices"),
    cpu_amounts=("added_in_turns",),
    count=_count_indexing,
)


VIEW = Family(
    name="view",
    # Any call that only aliases is a view too. Reading one number moves no data worth counting either; that it waits
    # for an accelerator is counted separately.
    ops=aten(
        "_local_scalar_dense view _unsafe_view permute transpose t unsqueeze squeeze expand slice select alias detach "
        "as_strided split split_with_sizes unbind diagonal unfold view_as_real view_as_complex movedim"
    ),
    read=lambda _: Features(0.0),
    moved_bytes=lambda _: 0.0,
)


def _read_other(call: OpCall) -> Features:
    """FLOPs: 1 per element of the largest tensor. That is too few for most of these ops, and a lower bound."""
    return Features(float(largest((*call.inputs, *call.outputs))), (largest(call.inputs), largest(call.outputs)))


OTHER = Family(
    name="other",
    # Their cost is arithmetic that placer has no formula for, whatever the sizes of their operands.
    prefixes=("aten::linalg_", "aten::_linalg_", "aten::fft_", "aten::_fft_", "aten::_ctc"),
    sizes={"inputs": "elements of the largest operand", "outputs": "elements of the largest result"},
    read=_read_other,
)
