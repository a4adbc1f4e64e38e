"""Views: ops that see the same memory in another way, such as ``view``, ``transpose``, ``expand`` and slices."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.tracing import OpCall


def _read(_: OpCall) -> Features:
    """No FLOPs and no features."""
    return Features(0.0)


def _moved_bytes(_: OpCall) -> float:
    return 0.0


FAMILY = Family(
    name="view",
    # Most views are told by the call, not by the op's name. Reading one number moves no data worth counting either;
    # that it waits for an accelerator is counted separately.
    ops=aten("_local_scalar_dense"),
    read=_read,
    moved_bytes=_moved_bytes,
)
