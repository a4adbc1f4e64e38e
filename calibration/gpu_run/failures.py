"""Probes that could not be measured, counted by device, family and error, in ``failures.json``."""

from __future__ import annotations

import json
from collections import Counter

from placer import machine
from placer.calibration.gpu_run.calibrating import PROFILE
from placer.calibration.gpu_run.job import Job
from placer.calibration.measuring.journal import Journal
from placer.profile import replace_file


def run(job: Job) -> None:
    """Count what the journal of the calibration holds."""
    journal = Journal((job.folder / PROFILE).with_suffix(".journal"), machine.fingerprint(), existing=True)
    failed = Counter((f.device, f.family, f.reason) for f in journal.failures)
    measured = Counter((o.device, o.family) for o in journal.observations)
    found = {
        "failed": [
            {"device": device, "family": family, "error": error, "count": count}
            for (device, family, error), count in failed.most_common()
        ],
        "measured": [
            {"device": device, "family": family, "count": count} for (device, family), count in measured.most_common()
        ],
        "unusable": journal.broken,
    }
    replace_file(job.folder / "failures.json", json.dumps(found, indent=1).encode() + b"\n")
    for (device, family, error), count in failed.most_common():
        job.say(f"{count} x {family} on {device}: {error}")
