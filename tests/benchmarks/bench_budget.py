"""What a larger calibration budget buys: the error over a validation record, calibrated anew with each budget.

    python tests/benchmarks/bench_budget.py RECORD [--budgets 10,30,60,120] [--output FILE]

RECORD is what ``placer validate --output RECORD`` wrote on this machine: it is measured once, and priced from every
calibration, with and without what the shipped profiles know. ``docs/dev/accuracy-details.md`` shows the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from placer import machine
from placer.calibration.build import build
from placer.calibration.measuring.journal import Journal
from placer.calibration.probing import measure, targets
from placer.calibration.progress import Progress
from placer.calibration.runner import fit_share
from placer.calibration.validation import record
from placer.calibration.validation.run import replay
from placer.calibration.validation.scores import score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--budgets", default="10,30,60,120")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    measured, here = record.load(arguments.record), machine.fingerprint()
    rows = []
    for budget in (float(text) for text in arguments.budgets.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            journal = Journal(Path(folder) / "journal", here)
            planned = targets(("cpu",), quick=False)
            for target in planned:
                seconds = budget * (1 - fit_share(planned)) * target.share
                measure(target, seconds, journal, Progress(), time.perf_counter)
            profile = build(journal, here, interrupted=False, unaided=False)
            took = time.perf_counter() - started
            by_itself = build(journal, here, interrupted=False, unaided=True)
        found, alone = (score(replay(measured, fitted).cells) for fitted in (profile, by_itself))
        assert found is not None
        assert alone is not None
        rows.append({"budget": budget, "took": took, "cells": found.cells, "median": found.median_error,
                     "p90": found.p90_error, "beyond_2x": found.beyond_2x, "inside": found.inside,
                     "alone_median": alone.median_error, "alone_p90": alone.p90_error})  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    print("| budget | took | median error | 90th percentile | beyond 2x | in the 90 % interval | learnt alone: median "
          "| 90th percentile |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for row in rows:
        shares = ("median", "p90", "beyond_2x", "inside", "alone_median", "alone_p90")
        print(" | ".join([f"| {row['budget']:.0f} s", f"{row['took']:.0f} s", *(f"{row[s]:.1%}" for s in shares)]), "|")
    if arguments.output:
        document = {"created": measured.created, "rows": rows}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
