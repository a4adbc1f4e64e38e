"""Says when the machine runs at another pace just now than the one it was calibrated at."""

from __future__ import annotations

import statistics

import torch

from placer.profile.profile import Profile

#: Beats to feel: some fifteen milliseconds of work.
BEATS = 64
#: Factor below which nothing is said: neighbours who come and go are every day's business.
NOTABLE = 1.25


def warning(profile: Profile, *, beat: float | None = None) -> str | None:
    """One line for a reader of predictions, or None where there is nothing to say.

    ``profile`` is this machine's; ``beat``: seconds of a beat just now (``calibration/pulse.py``), None: it is felt. A
    profile of another number of threads, or of a machine whose pulse was not felt, says nothing.
    """
    from placer.calibration.measuring.speed_probe import USUAL_BEAT, Pulse, is_alike

    threads = torch.get_num_threads()
    usual = profile.fit("cpu", threads).rates.get(USUAL_BEAT) if threads in profile.threads("cpu") else None
    if usual is None:
        return None
    if beat is None:
        pulse = Pulse(threads)
        beat = statistics.median(pulse.beat() for _ in range(BEATS))
    if is_alike(beat, usual, within=NOTABLE):
        return None
    if beat > usual:
        return (
            f"something slows this machine down just now: a fixed piece of work takes {beat / usual:.1f} times as long "
            "as when it was calibrated, and steps of many small ops will take about as much longer than predicted"
        )
    return (
        f"this machine is faster just now: a fixed piece of work takes {beat / usual:.1f} times as long as when it was "
        "calibrated, and steps of many small ops less than predicted; if it stays so, run: placer calibrate"
    )
