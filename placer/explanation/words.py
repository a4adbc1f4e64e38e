"""What all answers say alike: marks of what numbers rest on, what was priced, on which machine, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placer.decision import is_cpu
from placer.pricing import Cost

#: The provenance, in a legend, of a CPU that was not calibrated.
_ESTIMATED = "estimated"
#: Marks beside the names of devices that placer did not measure, and what they mean. A calibrated device has none.
_MARKS = {
    _ESTIMATED: ("§", "estimated from a similar CPU's measurements, not calibrated here; run: placer calibrate"),
    "published": ("†", "from measurements that others published of this GPU and of others, not from a calibration."),
    "data sheet": (
        "‡", "from the GPU's data sheet and published measurements of other GPUs: nobody's timings of this one.",
    ),
}  # fmt: skip


def kind(cost: Cost) -> str:
    """What a device's numbers rest on, in a word: its provenance; of a CPU that was not calibrated, ``estimated``."""
    return _ESTIMATED if is_cpu(cost.device) and cost.provenance != "calibrated" else cost.provenance


def kind_mark(cost: Cost) -> str:
    """The mark of what a device's numbers rest on; "" of a calibrated one."""
    return _MARKS.get(kind(cost), ("", ""))[0]


def headings(devices: Mapping[str, Cost]) -> dict[str, str]:
    """What each device is called above its numbers: its name, with the mark of what these rest on."""
    return {name: f"{name} {kind_mark(cost)}".rstrip() for name, cost in devices.items()}


def legend(costs: Iterable[Cost]) -> list[str]:
    """One line for each mark that stands somewhere."""
    bases = set(map(kind, costs))
    return [f"{mark} {meaning}" for basis, (mark, meaning) in _MARKS.items() if basis in bases]


def sureness(confidence: float) -> str:
    """A probability in words that never claim certainty: ``97%``, ``>99%``."""
    return ">99%" if confidence > 0.99 else f"{confidence:.0%}"


def workload_line(workload: Mapping[str, Any]) -> str:
    """One line on what was priced, a step or a job."""
    if workload.get("parts"):
        parts = ", ".join(f"{count:,g} × {name}" for name, count in workload["parts"].items())
        repeats = f"; repeated {workload['steps']:,} times" if workload.get("steps") else ""
        return f"Job: {parts}{repeats}."
    words = [str(workload.get("target", "model"))]
    if workload.get("inputs"):
        assumed = " (assumed; --batch sets it)" if workload.get("inputs_assumed") else ""
        words.append("on " + ", ".join(map(str, workload["inputs"])) + assumed)
    words.append("training" if workload.get("mode") == "train" else "inference")
    if workload.get("optimizer"):
        words.append(f"with {workload['optimizer']}")
    if workload.get("autocast"):
        words.append(f"under autocast to {workload['autocast']}")
    if workload.get("steps"):
        words.append(f"for {workload['steps']:,} steps")
    parameters = workload.get("parameters")
    size = "" if parameters is None else f"; {parameters:,} parameters"
    return f"Workload: {' '.join(words)}{size}; data on the {workload.get('data', 'host')}."


def machine_line(machine: Mapping[str, Any]) -> str:
    """What the numbers were measured on: ``Some CPU, 2 cores, Tesla T4, torch 2.13.0``."""
    parts = [str(machine.get("cpu", "unknown CPU"))]
    if machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    parts += [str(item.get("name", "accelerator")) for item in machine.get("accelerators") or []]
    if machine.get("torch"):
        parts.append(f"torch {machine['torch']}")
    if machine.get("calibrated"):
        parts.append(f"calibrated {machine['calibrated']}")
    return ", ".join(parts)
