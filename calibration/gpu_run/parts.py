"""The parts of a run, the most valuable first, and how long each may take in a run of the usual length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Seconds of a whole run.
SECONDS = 510.0
#: Seconds that starting a process, torch in it and a context takes; no part is begun with less.
STARTING = 5.0
#: Seconds after its time until a part that does not end is ended: it is in the middle of a network or a fit.
GRACE = 25.0


@dataclass(frozen=True)
class Part:
    """A piece of work of its own: its share of the time and what it brings.

    What the parts before did not use is shared among those that come. ``work`` is the function of this package that
    takes the job, as ``module.function``; where it is empty, ``run`` of the module of that name.
    """

    name: str
    seconds: float
    brings: str
    work: str = ""


PARTS = (
    Part("environment", 20.0, "the machine, its software, and what a first context takes"),
    Part("recorder_truth", 45.0, "kernels that torch's recorder loses, and what it costs"),
    Part("device_rates", 60.0, "rates by dtype, backend and size"),
    Part("calibrating", 165.0, "a calibration, its raw observations kept"),
    Part("cells_on_device", 80.0, "networks on the device, predicted and measured", "cells.on_device"),
    Part("cells_on_cpu", 25.0, "the same on the CPU", "cells.on_cpu"),
    Part("cells_in_bfloat16", 25.0, "networks in bfloat16 on the device", "cells.in_bfloat16"),
    Part("recorded_steps", 30.0, "the ops of one step of each network, with their kernels"),
    Part("choose_cost", 5.0, "what a first and a repeated choose() cost"),
    Part("failures", 5.0, "probes that failed, by family and error"),
)


def seconds_of(position: int, left: float, parts: Sequence[Part] = PARTS) -> float:
    """Seconds for the part at ``position`` when ``left`` are left for it and all after it; below 0 for none."""
    coming = parts[position:]
    work = left - STARTING * len(coming)
    return work * coming[0].seconds / sum(part.seconds for part in coming)
