"""The electric power that a step draws: an estimate from data sheets and predicted utilisation, not a measurement.

    watts = idle + utilisation x (full - idle), of the CPU and of the accelerator

(Cloud Carbon Footprint, "Methodology".) Nothing is counted for memory, disks, fans and power supplies, which any device
of a machine shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.errors import UnknownGPU
from placer.profile import DeviceFit, Profile, find_gpu

#: Watts of one hardware thread of a server, idle and fully used: means over the CPUs that AWS runs, of their
#: SPECpower_ssj2008 results (Cloud Carbon Footprint). Laptops and desktops differ by a factor of two.
CPU_IDLE, CPU_FULL = 0.74, 3.5
#: The share of its power limit that a GPU draws while it waits, in Teads' data set of AWS instances, which Cloud Carbon
#: Footprint uses: the eight A100 of a p4d.24xlarge draw 372 W idle, and 3,259 W fully used.
GPU_IDLE = 0.115


def step_watts(
    profile: Profile, fit: DeviceFit, components: Mapping[str, float], step_seconds: float, threads: int
) -> float | None:
    """Mean watts of the CPU and of the accelerator that ``fit`` is of, while a step of these components runs.

    On an accelerator, one thread of the host is busy: it issues ops, or waits for the device in a loop. The device is
    used while it computes; then it draws its power limit, which is too much for kernels of a few blocks. None where
    the number of hardware threads or the accelerator's power limit is not known.
    """
    cores = profile.fingerprint.get("host_cores") or profile.fingerprint.get("cores")
    if not isinstance(cores, int) or step_seconds <= 0.0:
        return None
    on_cpu = fit.device == "cpu"
    busy = min(threads if on_cpu else 1, cores)
    watts = cores * CPU_IDLE + busy * (CPU_FULL - CPU_IDLE)
    if on_cpu:
        return watts
    limit = power_limit(fit.gpu)
    if limit is None:
        return None
    used = min(components.get("compute", 0.0) / step_seconds, 1.0)
    return watts + limit * (GPU_IDLE + used * (1.0 - GPU_IDLE))


def power_limit(gpu: str) -> float | None:
    """Watts of a GPU by the name that the catalog has for it; None where it has none."""
    try:
        return find_gpu(gpu).watts or None if gpu else None
    except UnknownGPU:
        return None
