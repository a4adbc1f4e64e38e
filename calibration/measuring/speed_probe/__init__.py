"""Notices that the machine's speed changed, so that what was timed at another speed can be left out.

A virtual machine shares its cores with other machines, which none of its own counters shows. While one of them uses the
other half of a core, what is bound by instructions (Python, dispatch, additions) takes twice its time, a matrix product
a sixth more, a large copy no more at all. No single factor corrects that, and it comes and goes within milliseconds. So
the speed probe times a small, fixed amount of such work on all cores before and after every measurement: a *reading*,
in seconds.

The *usual* reading is the one near which the machine spent most of the time. A machine that is contended most of the
time is measured as contended. It is the mode of the readings and not their median: with contention on one core, on
another, or on both, the median lies between these speeds, where hardly any time is spent.
"""

from placer.calibration.measuring.speed_probe.probe import SpeedProbe, probed_cores
from placer.calibration.measuring.speed_probe.readings import USUAL_READING, is_alike, usual_reading
from placer.calibration.measuring.speed_probe.watching import STRETCH, at_usual_speed, watched

__all__ = [
    "STRETCH",
    "USUAL_READING",
    "SpeedProbe",
    "at_usual_speed",
    "is_alike",
    "probed_cores",
    "usual_reading",
    "watched",
]
