"""What to run: checks and freezes a workload, loads command line targets, and tells whether two models are alike."""

from placer.workload.compiled_modules import compiled_inside, compiled_mode
from placer.workload.description import describe_inputs, describe_workload
from placer.workload.exported import load_exported
from placer.workload.job import Job, Part
from placer.workload.loading import Loading
from placer.workload.machine_arguments import (
    MEASURE,
    THREADS,
    check_available,
    check_choice,
    check_devices,
    override,
    strict,
)
from placer.workload.randomness import same_order, same_randomness
from placer.workload.signature import (
    callable_signature,
    module_signature,
    optimizer_signature,
    signature,
    without_sizes,
)
from placer.workload.split import CpuPart, check_on_cpu, cpu_part, embedding_tables, weight_share
from placer.workload.target import load_target
from placer.workload.watch import Watch
from placer.workload.workload import Data, Workload
from placer.workload.workload_arguments import make_workload, optimizer_classes

__all__ = [
    "MEASURE",
    "THREADS",
    "CpuPart",
    "Data",
    "Job",
    "Loading",
    "Part",
    "Watch",
    "Workload",
    "callable_signature",
    "check_available",
    "check_choice",
    "check_devices",
    "check_on_cpu",
    "compiled_inside",
    "compiled_mode",
    "cpu_part",
    "describe_inputs",
    "describe_workload",
    "embedding_tables",
    "load_exported",
    "load_target",
    "make_workload",
    "module_signature",
    "optimizer_classes",
    "optimizer_signature",
    "override",
    "same_order",
    "same_randomness",
    "signature",
    "strict",
    "weight_share",
    "without_sizes",
]
