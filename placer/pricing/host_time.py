"""The time that the host takes to issue an op to an accelerator."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.work import Work

#: Names under which a fit stores the seconds to issue a call, and to issue an update besides the calls in it. ``/`` and
#: an op or a family may follow.
HOST, HOST_UPDATE = "host", "host_update"


def host_seconds(work: Work, framework: Mapping[str, float]) -> float:
    """Seconds to issue one call: those known of the op, else of its family, else of any op, else 0.0.

    An update is issued for all tensors at once: each call takes its own time and its share of the whole update's.
    """
    each = _of(work, HOST, framework, framework.get(HOST, 0.0))
    if work.family != "optimizer":
        return each
    _, tensors, *_ = work.sizes
    return each + _of(work, HOST_UPDATE, framework, 0.0) / tensors


def _of(work: Work, what: str, framework: Mapping[str, float], otherwise: float) -> float:
    return framework.get(f"{what}/{work.op}", framework.get(f"{what}/{work.family}", otherwise))
