"""Whether the event recorder sees a device's kernels, and what a launch takes longer once it has been used.

Both are found out with a chain of known kernels before the first probe: what one probe shows may be an accident. The
recorder's library stays attached to CUDA when a session ends, and every later launch of the process pays for that. The
user's process pays nothing, so the difference is measured around the first session and taken off.

A process whose first session recorded the CPU alone may never see a kernel (pytorch/pytorch#186970). So this runs
before the CPU is measured.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import chain

import torch

from placer.calibration.measuring.health import synchronizer
from placer.calibration.measuring.recording import Recorded, kind_shown, record
from placer.calibration.measuring.timing import Clock

#: Kernels of the chain, fewer than a queue holds; times it is issued before and after the session, and within it.
CHAIN, ROUNDS, RECORDED = 64, 60, 3
#: Share of the chain's kernels that must be reported.
LEAST_SEEN = 0.5

#: Seconds that the first session added to a launch, by kind of device: it can be measured once in a process.
_added: dict[str, float] = {}


@dataclass(frozen=True)
class KernelRecorder:
    """``sees`` the device's kernels or not; ``per_launch``: seconds that a launch takes longer since it was used.

    ``kernel_seconds`` is what it says a kernel takes that does next to nothing, 0.0 where it sees none.
    """

    sees: bool
    per_launch: float = 0.0
    kernel_seconds: float = 0.0


#: That of a device whose kernels the recorder does not show.
UNSEEN = KernelRecorder(sees=False)


def try_recorder(device: str, clock: Clock = time.perf_counter) -> KernelRecorder:
    """Issue, record and issue again a chain of known kernels on an accelerator.

    In a process that used the recorder before, ``per_launch`` is 0: it cannot be known any more.
    """
    kind = torch.device(device).type
    if kind != kind_shown():
        return UNSEEN
    synchronize = synchronizer(device)
    assert synchronize is not None
    tiny = torch.ones(8, device=device)

    def issued() -> float:
        """Seconds until the chain is issued; the wait for it does not count."""
        start = clock()
        for _ in range(CHAIN):
            tiny.neg_()
        seconds = clock() - start
        synchronize()
        return seconds

    def launch() -> float:
        return statistics.median(issued() for _ in range(ROUNDS)) / CHAIN

    issued()
    before = launch()
    runs = record(issued, RECORDED, accelerated=True)
    # More than a launch itself takes is a disturbance.
    _added.setdefault(kind, min(max(launch() - before, 0.0), before))
    kernels = [_seen(run) for run, _ in runs]
    sees = any(len(seconds) >= LEAST_SEEN * CHAIN for seconds in kernels)
    return KernelRecorder(sees, _added[kind], statistics.median(chain.from_iterable(kernels)) if sees else 0.0)


def _seen(run: Recorded) -> list[float]:
    """Seconds of the chain's kernels that were reported."""
    return [event.device_seconds for event in run.events if event.name == "aten::neg_" and event.device_seconds > 0.0]
