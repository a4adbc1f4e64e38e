"""What to run: checks and freezes a workload, and loads command line targets."""

from placer.workload.arguments import (
    check_available,
    check_choice,
    check_devices,
    check_devices_here,
    loss_modules,
    make_target,
    make_workload,
    of_classes,
    optimizer_classes,
    override,
    strict,
    takes,
)
from placer.workload.job import Job, Part
from placer.workload.loading import Loading, is_stream, measure_loading, same_order, same_randomness
from placer.workload.losses import parse_loss, usual_target
from placer.workload.pretrained import PREFIX, example
from placer.workload.target import SUFFIX, Target, load_target
from placer.workload.workload import (
    Data,
    Mode,
    Outputs,
    Workload,
    compiled_inside,
    compiled_mode,
    loss_of,
    outputs_stay,
    spread_over_processes,
    unwrap,
)

__all__ = [
    "Data", "Job", "Loading", "Mode", "Outputs", "PREFIX", "Part", "SUFFIX", "Target", "Workload", "check_available",
    "check_choice", "check_devices", "check_devices_here", "compiled_inside", "compiled_mode", "example", "is_stream",
    "load_target", "loss_modules", "loss_of", "make_target", "make_workload", "measure_loading", "of_classes",
    "optimizer_classes", "outputs_stay", "override", "parse_loss", "same_order", "same_randomness",
    "spread_over_processes", "strict", "takes", "unwrap", "usual_target",
]  # fmt: skip
