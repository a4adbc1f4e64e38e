"""The table of what each mechanism is worth: ``python -m placer.calibration.ablation RECORDS``.

All steps of the records in a folder, and of the networks that were held out of every fit, are priced with each
mechanism switched off in turn; with ``--published``, steps on GPUs that others published are too. Tables in Markdown go
to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from placer.calibration.ablation.cpu import Machine, Profiles, Records, cpu_outcome, opened
from placer.calibration.ablation.cpu_mechanisms import CPU_MECHANISMS
from placer.calibration.ablation.gpu import gpu_tables
from placer.calibration.ablation.mechanism import Outcome
from placer.calibration.ablation.table import Row, markdown, row, summary
from placer.calibration.measuring.observation import StepObservation


def cpu_rows(machines: Sequence[Machine], named: Sequence[str]) -> list[Row]:
    """A row for each mechanism of the CPU (with one of ``named`` in its name, where there are any)."""
    steps = _calibration_steps(machines)
    made = {machine.name: Profiles(machine, steps) for machine in machines}
    print(f"\n{summary(cpu_outcome(machines, {m.name: m.own_fits for m in machines}))}\n", flush=True)
    rows: list[Row] = []
    known: dict[tuple[str, bool], Outcome] = {}
    for mechanism in CPU_MECHANISMS:
        if named and not any(name in mechanism.name for name in named):
            continue
        begun = time.perf_counter()
        # Fitting all machines anew takes hours: the one whose calibration was kept stands for them.
        some = [m for m in machines if mechanism.redone == "prices" or mechanism.counts or m.journal is not None]
        how = mechanism.redone, bool(mechanism.counts)
        if how not in known:
            known[how] = cpu_outcome(some, {m.name: made[m.name].with_all(mechanism) for m in some})
        with mechanism.off():
            after = cpu_outcome(some, {m.name: made[m.name].without(mechanism) for m in some})
        rows.append(row(mechanism, known[how], after))
        print(list(markdown(rows))[-1], f"{time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return rows


def _calibration_steps(machines: Sequence[Machine]) -> dict[int, list[StepObservation]]:
    """The steps of the first calibration that was kept, by number of threads."""
    with opened(next(machine.journal for machine in machines if machine.journal is not None)) as journal:
        return {threads: journal.of(device, threads) for device, threads in journal.rates if device == "cpu"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.ablation", description=__doc__)
    parser.add_argument("records", type=Path, nargs="?", help="folder of records, one folder for each machine")
    parser.add_argument("--published", type=Path, metavar="DIR", help="folder of published measurements of GPUs")
    parser.add_argument("--steps", type=int, default=600, help="published steps to price (default: 600)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="CPU mechanisms so named")
    parser.add_argument("--networks", choices=("suite", "held-out"), help="of the records (default: both)")
    chosen = parser.parse_args(arguments)
    machines = Records(chosen.records).machines if chosen.records else ()
    for held_out in (False, True):
        some = [machine for machine in machines if machine.held_out == held_out]
        if some and chosen.networks in (None, "held-out" if held_out else "suite"):
            print(f"### {'Networks held out of every fit' if held_out else 'The full suite'}, on CPUs")
            print(*markdown(cpu_rows(some, chosen.only)), sep="\n", flush=True)
    if chosen.published:
        print(*gpu_tables(chosen.published, chosen.steps), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
