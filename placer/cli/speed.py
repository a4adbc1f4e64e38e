"""Says when the machine runs faster or slower just now than when it was calibrated."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.profile import Profile

#: Readings of the speed probe: some fifteen milliseconds of work.
READINGS = 64
#: Factor below which nothing is said: on a shared machine, smaller changes come and go all the time.
NOTABLE = 1.25


def warning(profile: Profile, *, reading: float | None = None) -> str | None:
    """One line for a reader of predictions, or None where there is nothing to say.

    ``profile`` is this machine's. ``reading`` is the speed probe's, in seconds; None takes one now. A profile without a
    reading at this number of threads says nothing.
    """
    import torch

    from placer.calibration import USUAL_READING, SpeedProbe, is_alike

    threads = torch.get_num_threads()
    usual = profile.fit("cpu", threads).rates.get(USUAL_READING) if threads in profile.threads("cpu") else None
    if usual is None:
        return None
    if reading is None:
        speed_probe = SpeedProbe(threads)
        reading = statistics.median(speed_probe.read() for _ in range(READINGS))
    if is_alike(reading, usual, within=NOTABLE):
        return None
    took = f"a fixed piece of work takes {reading / usual:.1f} times as long as when it was calibrated"
    if reading > usual:
        return (
            f"something slows this machine down just now: {took}, and steps of many small ops will take about as much "
            "longer than predicted"
        )
    return (
        f"this machine is faster just now: {took}, and steps of many small ops less than predicted; if it stays so, "
        "run: placer calibrate"
    )
