"""Where to run a workload or a job: machines, instance types and GPUs, by time, money and energy."""

from placer.fleets.answers import fleet
from placer.fleets.cpus import cpu_class
from placer.fleets.data import FleetRow
from placer.fleets.machine import Machine, gpu_beside, machine_named
from placer.fleets.pricing import Traced, compare, traced
from placer.fleets.result import Fleet

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
