"""Says when the machine runs at another pace just now than the one it was calibrated at."""

from __future__ import annotations

import statistics

import torch

from placer.profile import Profile

#: Beats to feel: some fifteen milliseconds of work.
READINGS = 64
#: Factor below which nothing is said: neighbours who come and go are every day's business.
NOTABLE = 1.25


def warning(profile: Profile, *, reading: float | None = None) -> str | None:
    """One line for a reader of predictions, or None where there is nothing to say.

    ``profile`` is this machine's; ``reading``: seconds of a reading just now (``calibration/speed_probe.py``), None: it is felt. A
    profile of another number of threads, or of a machine whose speed_probe was not felt, says nothing.
    """
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
    if reading > usual:
        return (
            f"something slows this machine down just now: a fixed piece of work takes {reading / usual:.1f} times as long "
            "as when it was calibrated, and steps of many small ops will take about as much longer than predicted"
        )
    return (
        f"this machine is faster just now: a fixed piece of work takes {reading / usual:.1f} times as long as when it was "
        "calibrated, and steps of many small ops less than predicted; if it stays so, run: placer calibrate"
    )
