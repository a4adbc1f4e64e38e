"""Real networks to validate on: a taste of every family in about a minute.

A checkout has more of them (``placer.calibration.lab.suite``). Only ``Entry.build`` imports the packages that a network
comes from.
"""

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.quick import QUICK

__all__ = ["QUICK", "Entry"]
