"""What other programs on the cores make of a step that takes longer than one turn of the scheduler.

Where another program wants a core, the two get it in turns of a millisecond or so. Most steps that are shorter than a
turn pass undisturbed, so that their median is that of a quiet machine. A step that is longer than some turns waits in
every one of the others, and an op on all cores waits for the one that is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Name of the factor among a device's rates.
LONG_STEPS = "long_steps"
#: Seconds of a step up to which hardly any median shows other programs, and from which on it shows all of them. Linux
#: gives turns of 0.7 ms times one plus the binary logarithm of the number of cores, eight at most
#: (``base_slice_ns`` of kernel/sched/fair.c): 1.4 ms on two cores.
ONE_TURN, MANY_TURNS = 0.4e-3, 2.0e-3


def long_share(seconds: float) -> float:
    """Of the logarithm of that factor, the share that a step of ``seconds`` on a quiet machine shows: from 0 to 1."""
    return min(max(math.log(max(seconds, ONE_TURN) / ONE_TURN) / math.log(MANY_TURNS / ONE_TURN), 0.0), 1.0)


def waiting_seconds(seconds: float, rates: Mapping[str, float]) -> float:
    """Seconds that a step of ``seconds`` waits for other programs, as far as a calibration with these rates saw."""
    factor = max(rates.get(LONG_STEPS, 1.0), 1.0)
    return seconds * math.expm1(math.log(factor) * long_share(seconds))


def waiting_doubt(seconds: float, rates: Mapping[str, float]) -> float:
    """Standard deviation of the log of that step: its median is one that waits, or one that does not."""
    share = long_share(seconds)
    return math.log(max(rates.get(LONG_STEPS, 1.0), 1.0)) * math.sqrt(share * (1.0 - share))
