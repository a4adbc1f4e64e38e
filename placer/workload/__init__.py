"""What to run: checks and freezes a workload, loads command line targets, and tells whether two models are alike."""

from placer.workload.description import describe_inputs, describe_workload
from placer.workload.exported import load_exported
from placer.workload.machine_arguments import (
    MEASURE,
    THREADS,
    check_available,
    check_choice,
    check_devices,
    override,
    strict,
)
from placer.workload.signature import (
    callable_signature,
    module_signature,
    optimizer_signature,
    signature,
    without_sizes,
)
from placer.workload.target import load_target
from placer.workload.watch import Watch
from placer.workload.workload import Data, Workload
from placer.workload.workload_arguments import make_workload, optimizer_classes

__all__ = [
    "MEASURE",
    "THREADS",
    "Data",
    "Watch",
    "Workload",
    "callable_signature",
    "check_available",
    "check_choice",
    "check_devices",
    "describe_inputs",
    "describe_workload",
    "load_exported",
    "load_target",
    "make_workload",
    "module_signature",
    "optimizer_classes",
    "optimizer_signature",
    "override",
    "signature",
    "strict",
    "without_sizes",
]
