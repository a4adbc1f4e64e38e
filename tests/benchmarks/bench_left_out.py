"""Leave one family out: the error over a validation record without calibration's generated networks of one kind.

    python tests/benchmarks/bench_left_out.py RECORD [--seconds 40] [--output FILE]

RECORD is what ``placer validate --output RECORD`` wrote on this machine. The CPU is measured once; the fit is repeated
with all networks, and without those of each kind. Networks of that kind are then as new to it as any user's. It is
learnt alone: a shipped profile has seen them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from placer import machine
from placer.calibration.build import build
from placer.calibration.fitting.device import fit_device
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.probing import Target, measure
from placer.calibration.progress import Progress
from placer.calibration.validation import record
from placer.calibration.validation.run import replay
from placer.calibration.validation.scores import score

#: Kinds of generated networks, and the families of the suite that are made like them.
KINDS = {
    ("mlp", "single", "small"): ("mlp", "policy", "recommender", "tabular", "ode"),
    ("cnn",): ("cnn", "conv1d", "autoencoder", "generative"),
    ("transformer",): ("transformer",),
    ("recurrent",): ("recurrent",),
    ("graph",): ("graph",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    measured = record.load(arguments.record)
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal", machine.fingerprint())
        measure(Target("cpu", threads, 1.0), arguments.seconds, journal, Progress(), time.perf_counter)
        profile = build(journal, machine.fingerprint(), interrupted=False, unaided=True)
        steps, rates = journal.of("cpu", threads), journal.rates["cpu", threads]
        journal.close()

    def errors(kept: Sequence[StepObservation], families: Sequence[str]) -> dict[str, float]:
        fit = fit_device(kept, rates, device="cpu", threads=threads)
        cells = tuple(cell for cell in measured.cells if cell.family in families and cell.threads == threads)
        found = score(replay(replace(measured, cells=cells), replace(profile, fits=(fit,))).cells)
        assert found is not None
        return {"cells": found.cells, "median": found.median_error, "p90": found.p90_error, "inside": found.inside}

    rows = []
    for kinds, families in KINDS.items():
        kept = [s for s in steps if not (s.family == "network" and s.name.split()[0] in kinds)]
        rows.append({"without": "+".join(kinds), "left_out": len(steps) - len(kept), "families": list(families),
                     "with_them": errors(steps, families), "without_them": errors(kept, families)})  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    print("| networks left out | scored on | cells | median, 90th with them | median, 90th without | in the interval |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        a, b = row["with_them"], row["without_them"]
        both = " | ".join(f"{found['median']:.1%}, {found['p90']:.1%}" for found in (a, b))
        left_out = f"{row['without']} ({row['left_out']})"
        print(f"| {left_out} | {', '.join(row['families'])} | {a['cells']} | {both} | {b['inside']:.1%} |")
    if arguments.output:
        arguments.output.write_text(json.dumps({"created": measured.created, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
