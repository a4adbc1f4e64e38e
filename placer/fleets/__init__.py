"""Where to run a workload or a job: machines, instance types and GPUs, by time, money and energy."""

from placer.fleets.answer import Fleet, FleetRow
from placer.fleets.machine import Machine, cpu_called, cpu_class, gpu_beside, machine_named
from placer.fleets.ranking import compare, fleet, traced, work_of

__all__ = [
    "Fleet",
    "FleetRow",
    "Machine",
    "compare",
    "cpu_called",
    "cpu_class",
    "fleet",
    "gpu_beside",
    "machine_named",
    "traced",
    "work_of",
]
