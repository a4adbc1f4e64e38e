"""What to run: checks and freezes a workload, and loads command line targets."""

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
from placer.workload.split import CpuPart, check_on_cpu, cpu_part, embedding_tables, weight_share
from placer.workload.step_loss import loss_of
from placer.workload.target import load_target
from placer.workload.workload import Data, Workload
from placer.workload.workload_arguments import make_workload, optimizer_classes
from placer.workload.wrapped import compiled_inside, compiled_mode, spread_over_processes, unwrap

__all__ = [
    "MEASURE",
    "THREADS",
    "CpuPart",
    "Data",
    "Job",
    "Loading",
    "Part",
    "Workload",
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
    "loss_of",
    "make_workload",
    "optimizer_classes",
    "override",
    "same_order",
    "same_randomness",
    "spread_over_processes",
    "strict",
    "unwrap",
    "weight_share",
]
