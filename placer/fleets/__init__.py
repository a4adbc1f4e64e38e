"""Where to run a workload or a job: machines, instance types and GPUs, by time, money and energy."""

from placer.fleets.answer import Fleet, FleetRow
from placer.fleets.machine import Machine, cpu_called, cpu_class, gpu_beside, machine_named
from placer.fleets.ranking import fleet, rank, work_of

__all__ = [
    "Fleet",
    "FleetRow",
    "Machine",
    "cpu_called",
    "cpu_class",
    "fleet",
    "gpu_beside",
    "machine_named",
    "rank",
    "work_of",
]
