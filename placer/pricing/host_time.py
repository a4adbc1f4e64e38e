"""The time that the host takes to issue an op to an accelerator, and in how many kernels."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.families import FAMILIES
from placer.pricing.kernels import op_of
from placer.pricing.work import Work
from placer.profile import DeviceFit
from placer.tracing import CHECKS, COUNTS, READS

#: Names under which a fit stores the seconds to issue a call, and to issue an update besides the calls in it. ``/`` and
#: an op or a family may follow.
HOST, HOST_UPDATE = "host", "host_update"
#: The same of the number of kernels that an op runs in; ``/`` and an op follow.
KERNELS = "kernels"
#: What follows the name of an update in one kernel.
FUSED = ".fused"
_FUSED_FLAG = list(FAMILIES["optimizer"].flags).index("fused")


def host_seconds(work: Work, framework: Mapping[str, float]) -> float:
    """Seconds to issue one call: those known of the op, else of its family, else of any op, else 0.0.

    An update is issued for all tensors at once: each call takes its own time and its share of the whole update's.
    """
    each = _of(work, HOST, framework, framework.get(HOST, 0.0))
    if work.family != "optimizer":
        return each
    _, tensors, *_ = work.sizes
    return each + _of(work, HOST_UPDATE, framework, 0.0) / tensors


def kernels_of(work: Work, framework: Mapping[str, float]) -> float:
    """Kernels that one call runs in; 1.0 where it is not known. A tensor's share of an update may be less than one."""
    return framework.get(f"{KERNELS}/{issued_as(work)}", 1.0)


def pause_seconds(kernels: float, fit: DeviceFit) -> float:
    """Seconds between kernels that follow each other on the device, which no kernel's own time holds."""
    return kernels * fit.rates.get("kernel_gap_seconds", 0.0)


def waits_for_device(kernel: str) -> bool:
    """Whether the host waits in an op for a value, a number of rows or a check. A trace counts these waits.

    An index by a mask is one: its rows are counted first. ``kernel`` is an op's name, or that of its kernel.
    """
    name = op_of(kernel)
    if name in READS or name.removeprefix("aten::") in COUNTS | CHECKS:
        return True
    return kernel.endswith(".mask") and "index" in name


def issued_as(work: Work) -> str:
    """The name that the host's times of an op are kept under: a fused update is another call than a usual one."""
    return f"{work.op}{FUSED}" if work.family == "optimizer" and work.flags[_FUSED_FLAG] else work.op


def _of(work: Work, what: str, framework: Mapping[str, float], otherwise: float) -> float:
    return framework.get(f"{what}/{issued_as(work)}", framework.get(f"{what}/{work.family}", otherwise))
