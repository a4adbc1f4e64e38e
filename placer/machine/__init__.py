"""What this machine is: cores, memory, accelerators, and the settings that change how fast torch runs on them.

Nothing here but ``memory`` creates a device context to look (seconds, and hundreds of MB on the card).
"""

from placer.machine import malloc
from placer.machine.cpu import cpu_instructions, cpu_model, cpu_version, machine_id, usable_cores
from placer.machine.device_memory import known_free_memory, memory
from placer.machine.devices import (
    accelerators,
    available_devices,
    has_context,
    normal_device,
    split_device,
    utilization,
)
from placer.machine.identity import fingerprint, matmul_precision
from placer.machine.malloc import FIRST_THRESHOLD, LAST_THRESHOLD, HeapState
from placer.machine.staleness import differences

__all__ = [
    "FIRST_THRESHOLD",
    "LAST_THRESHOLD",
    "HeapState",
    "accelerators",
    "available_devices",
    "cpu_instructions",
    "cpu_model",
    "cpu_version",
    "differences",
    "fingerprint",
    "has_context",
    "known_free_memory",
    "machine_id",
    "malloc",
    "matmul_precision",
    "memory",
    "normal_device",
    "split_device",
    "usable_cores",
    "utilization",
]
