"""What a step needs of a device's memory, and what it could have of it, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placer import machine
from placer.pricing.describe import is_update
from placer.pricing.ops import row_of
from placer.pricing.shapes import settings
from placer.profile import Device, Profile, memory_of
from placer.tracing import OpCall, Trace, once_per_trace

#: What a CUDA context takes of a device that this process does not use yet: 0.3 to 0.6 GB with PyTorch's kernels.
CONTEXT_BYTES = {"cuda": 500_000_000}
#: Share by which an accelerator's allocator and the workspaces of its libraries exceed what tensors need: 5 to 10 %.
ALLOCATOR_SHARE = 0.07


@dataclass(frozen=True)
class Residence:
    """Where a workload is, and whose devices are asked about.

    ``here``: those of this machine. ``home`` is the one device that all its weights are on, the CPU where they differ.
    ``held`` is what it holds of each device: bytes of parameters, buffers, gradients and optimizer state that its steps
    use. ``fitted_as`` maps devices to their twins, under whose names the profile has their fit.
    """

    here: bool = True
    home: str = "cpu"
    held: Mapping[str, int] = field(default_factory=dict)
    fitted_as: Mapping[str, str] = field(default_factory=dict)


def needed_bytes(trace: Trace, device: str) -> int:
    """The most memory that a step has in use at one time.

    On an accelerator the optimizer updates all tensors at once, which takes one more copy of those it updates when the
    activations are gone; and its allocator and libraries take more than the tensors need.
    """
    if device == "cpu":
        return trace.peak_bytes
    beyond = max(_update_bytes(trace) - trace.peak_activation_bytes, 0)
    return int((trace.peak_bytes + beyond) * (1.0 + ALLOCATOR_SHARE))


def available_bytes(device: str, fit: Device, residence: Residence) -> int | None:
    """What a workload could have of a device of this machine: what is free, and what it holds there already.

    Where only a device context could tell what is free, all of the device's memory, as calibration recorded it. None
    where nothing is known, as of a device that is not here (but for a GPU of the catalog: all it has).
    """
    total = int(fit.rates["memory_bytes"]) if "memory_bytes" in fit.rates else None
    if device not in machine.available_devices():
        return total if fit.gpu else None
    free = machine.known_free_memory(device)
    if free is None:
        free = total
    if free is None:
        return None
    if not machine.has_context(device):
        free -= CONTEXT_BYTES.get(machine.split_device(device)[0], 0)
    mine = free + residence.held.get(device, 0)
    # Less than the driver says where the process gets a part of the device only.
    return mine if total is None or device == "cpu" else min(mine, total)


def memory_elsewhere(profile: Profile, fit: Device) -> int | None:
    """What a workload could have of another machine's device, were nothing else on it; None where that is not known."""
    total = memory_of(profile, fit.device)
    if total is None or fit.gpu:  # the catalog counts what a context leaves
        return total
    return total - CONTEXT_BYTES.get(machine.split_device(fit.device)[0], 0)


@once_per_trace
def _update_bytes(trace: Trace) -> int:
    """Bytes of intermediates of an update of all tensors at once."""
    return sum(call.inputs[0].stored_bytes for call in trace.calls if is_update(call) and _has_copy(call))


def _has_copy(call: OpCall) -> bool:
    """Whether an update of all tensors at once keeps an intermediate as large as each of them."""
    chosen, traits = settings(call), row_of(call.op).traits
    if "no_lists" in traits or chosen.get("fused") or chosen.get("foreach") is False:
        return False
    return "adds_in_place" not in traits or bool(chosen.get("weight_decay"))
