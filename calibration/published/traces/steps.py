"""Where the steps of a trace begin and end, and which of its ops belong to backward."""

from __future__ import annotations

import re
from dataclasses import dataclass

from placer.calibration.measuring.events import Assigned, RawEvent
from placer.calibration.measuring.in_place import BACKWARD_NODE, UPDATE_RANGE

#: A node's own name, which it has beside or, in torch 1.9, instead of the engine's.
_NODE = re.compile(r"\w+Backward\d*$|torch::autograd::AccumulateGrad$")
#: How torch's profiler names the annotation around a step.
_STEP = "ProfilerStep#"


@dataclass(frozen=True)
class Steps:
    """``marks``: nanoseconds at which a step begins, and the end of the last; ``thread`` runs the steps."""

    marks: tuple[int, ...]
    thread: int

    def __len__(self) -> int:
        return len(self.marks) - 1


def find_steps(found: Assigned) -> Steps | None:
    """The steps that the profiler marked, else those from one update of the optimizer to the next; None without any."""
    ranges = [event for event in found.host if is_step(event)]
    if ranges:
        return Steps((*(event.start_ns for event in ranges), ranges[-1].end_ns), ranges[0].thread)
    ranges = [event for event in found.host if is_update(event)]
    return Steps(tuple(event.end_ns for event in ranges), ranges[0].thread) if len(ranges) > 1 else None


def is_step(event: RawEvent) -> bool:
    """Whether an event is a step that the profiler marked."""
    return event.name.startswith(_STEP)


def is_update(event: RawEvent) -> bool:
    """Whether an event is an optimizer's step."""
    return event.name.startswith(UPDATE_RANGE)


def is_backward(event: RawEvent) -> bool:
    """Whether an event is a node of autograd's graph, which on GPUs runs on a thread of its own."""
    return event.name.startswith(BACKWARD_NODE) or _NODE.match(event.name) is not None
