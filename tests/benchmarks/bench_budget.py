"""What a larger calibration budget buys: the error over a validation record, calibrated anew with each budget.

    python tests/benchmarks/bench_budget.py RECORD [--budgets 10,30,60,120] [--output FILE]

RECORD is what ``placer validate --output RECORD`` wrote on this machine: it is measured once, and priced from every
calibration. ``docs/calibration.md`` shows the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from placer import calibrate
from placer.calibration import record
from placer.calibration.scoring import score
from placer.calibration.validation import replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--budgets", default="10,30,60,120")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    measured = record.load(arguments.record)
    rows = []
    for budget in (float(text) for text in arguments.budgets.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            profile = calibrate(budget=budget, devices=("cpu",), progress=False, path=Path(folder) / "profile.json")
            took = time.perf_counter() - started
        found = score(replay(measured, profile).cells)
        assert found is not None
        rows.append({"budget": budget, "took": took, "cells": found.cells, "median": found.median_error,
                     "p90": found.p90_error, "beyond_2x": found.beyond_2x, "inside": found.inside})  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    print("| budget | took | median error | 90th percentile | beyond 2x | in the interval |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['budget']:.0f} s | {row['took']:.0f} s | {row['median']:.1%} | {row['p90']:.1%} "
              f"| {row['beyond_2x']:.1%} | {row['inside']:.1%} |")  # fmt: skip
    if arguments.output:
        document = {"created": measured.created, "rows": rows}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
