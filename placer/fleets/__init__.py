"""Where to run a workload or a job: machines, instance types and GPUs, by time, money and energy."""

from placer.fleets.data import FleetRow
from placer.fleets.machine import Machine, cpu_class, gpu_beside, machine_named
from placer.fleets.ranking import Fleet, Traced, compare, fleet, traced

__all__ = [
    "Fleet",
    "FleetRow",
    "Machine",
    "Traced",
    "compare",
    "cpu_class",
    "fleet",
    "gpu_beside",
    "machine_named",
    "traced",
]
