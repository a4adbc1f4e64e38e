"""Calibrates the device for most of the time, then the CPU. The raw observations stay in ``profile.journal``.

The CPU needs less: profiles that are shipped know most of it.
"""

from __future__ import annotations

import torch

from placer import machine, profile
from placer.calibration.build import build
from placer.calibration.gpu_run.job import Job
from placer.calibration.measuring.journal import Journal
from placer.calibration.progress import silent
from placer.calibration.runner import finished, measure_all
from placer.calibration.target import Target

#: Where the profile is kept, in the folder of a record.
PROFILE = "profile.json"
#: Shares of the time: of the device, and of the CPU. The rest is for fitting.
DEVICE, CPU = 0.68, 0.09
#: Share of the time that measuring may take longer, at the expense of fitting.
SLACK = 0.08


def run(job: Job) -> None:
    """Measure, fit and save the profile, unless there is one. What an earlier run measured counts."""
    path = job.folder / PROFILE
    facts = machine.fingerprint()
    if finished(path, facts, (job.device,)):
        job.say(f"{path} is there: nothing is left to measure")
        return
    threads, measuring = torch.get_num_threads(), DEVICE + CPU
    targets = [Target(job.device, threads, DEVICE / measuring), Target("cpu", threads, CPU / measuring)]
    journal = Journal(path.with_suffix(".journal"), facts)
    end = job.clock() + (measuring + SLACK) * job.left
    measure_all(targets, measuring * job.left, journal, silent(), job.clock, deadline=end)
    profile.save(build(journal, facts, interrupted=False, unaided=False), path)
