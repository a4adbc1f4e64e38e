"""What this machine is: cores, memory, accelerators, and the settings that change how fast torch runs on them.

Nothing here but ``memory`` creates a device context to look (seconds, and hundreds of MB on the card).
"""

from placer.machine.cpu import cpu_instructions, cpu_model, cpu_version, machine_id, usable_cores
from placer.machine.devices import (
    accelerators,
    available_devices,
    current_device,
    has_context,
    known_free_memory,
    memory,
    normal_device,
    reserved_memory,
    split_device,
    unsupported,
    utilization,
)
from placer.machine.identity import (
    OLDEST_TORCH,
    describe_accelerators,
    differences,
    fingerprint,
    matmul_precision,
    older_torch,
    same_kind,
    tf32,
)
from placer.machine.nvml import describe_driver, order_is_known
from placer.machine.speed import (
    MeasuredSpeeds,
    Moment,
    children_seconds,
    measure_speeds,
    moment,
    others_share,
    small_network,
    taken_share,
)

__all__ = [
    "MeasuredSpeeds", "Moment", "OLDEST_TORCH", "accelerators", "available_devices", "children_seconds",
    "cpu_instructions", "cpu_model", "cpu_version", "current_device", "describe_accelerators", "describe_driver",
    "differences", "fingerprint", "has_context", "known_free_memory", "machine_id", "matmul_precision",
    "measure_speeds", "memory", "moment", "normal_device", "older_torch", "order_is_known", "others_share",
    "reserved_memory", "same_kind", "small_network", "split_device", "taken_share", "tf32", "unsupported",
    "usable_cores", "utilization",
]  # fmt: skip
