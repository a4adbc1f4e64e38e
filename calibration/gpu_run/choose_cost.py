"""Seconds of a first and of a repeated ``choose`` of a few networks, in ``choose_cost.json``; nothing is moved."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import placer
from placer import profile
from placer.calibration.gpu_run import networks
from placer.calibration.gpu_run.calibrating import PROFILE
from placer.calibration.gpu_run.job import Job
from placer.profile import replace_file

NETWORKS = ("mlp_tabular", "actor_critic", "lstm_2_layers_50_steps", "resnet50", "bert_base", "gpt2_small")
REPEATED = 10


def run(job: Job) -> None:
    """As many as there is time for."""
    found: dict[str, dict[str, float]] = {}
    known = profile.load(job.folder / PROFILE)
    for entry in networks.on_device(job):
        if entry.name not in NETWORKS or entry.missing() or not job.left:
            continue
        model, example = entry.build(), entry.example(entry.batches[0])

        def once(model: Any = model, example: Any = example) -> float:
            start = time.perf_counter()
            placer.choose(model, example=example, mode="train", profile=known, move=False)
            return time.perf_counter() - start

        first = once()
        found[entry.name] = {
            "first_seconds": first, "repeated_seconds": statistics.median(once() for _ in range(REPEATED)),
        }  # fmt: skip
        replace_file(job.folder / "choose_cost.json", json.dumps(found, indent=1).encode() + b"\n")
