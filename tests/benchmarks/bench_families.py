"""How far each family's prices are off inside the steps of the validation suite, op by op, on this machine's CPU.

    python tests/benchmarks/bench_families.py [PROFILE] [--output FILE]

Every op is timed where it stands, as in calibration, and priced from PROFILE (this machine's by default). In each step
the prices of a family are added up, and so are its times, which gives an error of that step, |priced - measured| over
measured. The error of a family is their median, each step counting by the family's share of it: where products are a
thousandth of a step, nobody asks how far they are off. ``docs/dev/op-families.md`` shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from placer import load_profile
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.recording import recorder_cost
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.suite import entries
from placer.calibration.validation.cells import build_model, cell_workload, cells_of
from placer.errors import PlacerError
from placer.pricing.describe import describe_step
from placer.pricing.predict import predict
from placer.tracing import trace

#: Seconds of steps per cell, and the longest step that is timed.
SECONDS, LONGEST = 0.25, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    profile = load_profile(arguments.profile)
    threads = torch.get_num_threads()
    recorder = recorder_cost("cpu")
    shares: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    cells = 0
    for entry in entries("full"):
        if entry.missing():
            continue
        model = build_model(entry)
        optimizer = make_optimizer(model, entry.optimizer) if "train" in entry.modes else None
        for cell in cells_of(entry, (("cpu", threads),)):
            workload = cell_workload(entry, model, cell, "host")
            try:
                traced = trace(workload)
            except PlacerError:
                continue
            step = Step(workload, "cpu", optimizer)
            step.prepare()
            for _ in range(3):
                step()
            timing = time_step(step, traced, seconds=SECONDS)
            if timing.seconds > LONGEST or timing.matched < 0.9:
                continue
            priced = predict(traced, profile, devices=("cpu",))["cpu"].priced
            assert priced is not None
            scale = timing.lengthened * timing.undisturbed_share(recorder)
            own = timing.recording(recorder)
            seen = {id(op.call): scale * op.corrected(own) for op in timing.ops}
            difference: dict[str, float] = defaultdict(float)
            measured: dict[str, float] = defaultdict(float)
            for call, work, price in zip(traced.calls, describe_step(traced), priced.seconds, strict=True):
                if id(call) in seen:
                    difference[work.family] += price - seen[id(call)]
                    measured[work.family] += seen[id(call)]
            # A contended moment may have met the ops and not the steps.
            whole = max(timing.seconds, sum(measured.values()))
            for family, seconds in measured.items():
                shares[family].append(seconds / whole)
                errors[family].append(abs(difference[family]) / seconds if seconds else 0.0)
            cells += 1
        print(f"{entry.name}: {cells} cells", file=sys.stderr, flush=True)
    rows = [
        {
            "family": family,
            "steps": len(shares[family]),
            "share": sum(shares[family]) / cells,
            "error": weighted_median(errors[family], shares[family]),
        }
        for family in sorted(shares, key=lambda name: -sum(shares[name]))
    ]
    print("| family | steps | share of a step's time | error |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['family']} | {row['steps']} | {row['share']:.1%} | {row['error']:.0%} |")
    if arguments.output:
        document = {"created": profile.created, "threads": threads, "cells": cells, "families": rows}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value below which half of the weight lies."""
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order])
    return float(np.asarray(values)[order][np.searchsorted(reached, reached[-1] / 2)])


if __name__ == "__main__":
    main()
