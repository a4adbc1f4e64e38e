"""Advice beside what it does: the gain predicted for networks of the suite, and that of the changed step, measured.

    python tests/benchmarks/bench_advice.py [--profile FILE|NAME] [--rounds N]

Both steps run by turns on the CPU, and the median of each counts. Only changes that apply there are tried: a larger
batch, another number of threads, another activation.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from statistics import median

import torch
import torch.nn.functional as F

from placer import profile as profiles
from placer.calibration.suite import entries
from placer.decision import compare, gather, trace_parts
from placer.decision.advice import LARGER, SUBSTITUTES, advise
from placer.decision.measured import running_with, step_on
from placer.explanation import Advice
from placer.workload import make_workload, same_randomness

NETWORKS = (
    ("conv1d_regressor", 16),
    ("conv1d_regressor", 512),
    ("mnist_convnet", 16),
    ("gpt2_tiny", 1),
    ("resnet18", 1),
)
WARM_UP = 3


@contextlib.contextmanager
def replaced(name: str) -> Iterator[None]:
    """``torch.nn.functional`` with one activation exchanged for its substitute."""
    before = getattr(F, name)
    setattr(F, name, getattr(F, SUBSTITUTES[name]))
    try:
        yield
    finally:
        setattr(F, name, before)


def measured(advice: Advice, entry: object, batch: int, rounds: int) -> float | None:
    """The share of the time that the change saves, per row; None where it does not apply on the CPU."""
    threads, activation, size = torch.get_num_threads(), None, batch
    if advice.kind == "batch":
        size = batch * LARGER
    elif advice.kind == "threads":
        threads = int(advice.change.split()[0])
    elif advice.kind == "op":
        activation = advice.change.rsplit(" ", 1)[1]
    else:
        return None

    def step(rows: int):  # type: ignore[no-untyped-def]  # a zero-argument function
        workload = make_workload(
            entry.build(), example=entry.example(rows), mode="train", optimizer=entry.optimizer, loss=entry.loss  # type: ignore[attr-defined]
        )  # fmt: skip
        return step_on(workload, "cpu")

    before, after = step(batch), step(size)
    seconds: tuple[list[float], list[float]] = ([], [])
    for round_ in range(WARM_UP + rounds):
        for number, run in enumerate((before, after)):
            with contextlib.ExitStack() as stack:
                if number:
                    stack.enter_context(running_with(threads))
                    if activation is not None:
                        stack.enter_context(replaced(activation))
                start = time.perf_counter()
                run()
                took = time.perf_counter() - start
            if round_ >= WARM_UP:
                seconds[number].append(took)
    return 1.0 - (median(seconds[1]) / size) / (median(seconds[0]) / batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    profile = profiles.load_cached(options.profile)
    known = {entry.name: entry for entry in entries("full")}
    for name, batch in NETWORKS:
        entry = known[name]
        if entry.missing():
            print(f"{name}: not installed: {', '.join(entry.missing())}")
            continue
        example = entry.example(batch)
        workload = make_workload(
            entry.build(), example=example, mode="train", optimizer=entry.optimizer, loss=entry.loss
        )
        traced, candidates = trace_parts(workload), gather(profile, ("cpu",), here=False)
        table = compare(traced, candidates)
        for advice in advise(traced, table, table.decide(), candidates):
            with same_randomness(["cpu"]):
                seen = measured(advice, entry, batch, options.rounds)
            if seen is not None:
                print(f"{name} at {batch}: {advice.change}: predicted {advice.gain:.0%}, measured {seen:.0%}")


if __name__ == "__main__":
    main()
