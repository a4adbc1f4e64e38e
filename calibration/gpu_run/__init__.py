"""What one run on a machine with an accelerator brings home, in a given time: ``make gpu``.

Every part runs in a process of its own with a time of its own, the most valuable first, and writes what it finds as it
goes. So a part that fails, hangs or breaks the device costs its own results only. ``command`` runs the parts that
``parts`` lists; ``child`` is the process of one.
"""

from __future__ import annotations

from placer.calibration.gpu_run.command import main

__all__ = ["main"]
