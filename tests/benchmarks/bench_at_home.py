"""What placer costs in a training script that keeps it: time per call, memory after many, overhead per step.

    python tests/benchmarks/bench_at_home.py [--calls 10000] [--steps 100000]

Nothing is asserted, times depend on the day. Uses this machine's profile (run placer calibrate first), and a history
of its own. ``repeated`` is ``choose`` on the same model and batch. ``changing`` has as many batch shapes as there are
calls, in random order, so that none is known: once with a trace for each, once as it is, with those interpolated that
lie between others; ``traced`` is how many of them were not. Memory is the process's resident memory; ``step`` is
``with placement.step(): pass``.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from unittest import mock

import psutil
import torch
from torch import nn

from placer import decision as deciding


def per_call(function: Callable[[int], object], count: int) -> list[float]:
    """Seconds of each of ``count`` calls."""
    seconds = []
    for number in range(count):
        started = time.perf_counter()
        function(number)
        seconds.append(time.perf_counter() - started)
    return seconds


def resident() -> float:
    """Resident memory of this process in MB, after a collection."""
    gc.collect()
    return float(psutil.Process().memory_info().rss / 1e6)


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    middle = statistics.median(ordered)
    print(
        f"{name:34} median {middle * 1e6:9.2f} µs   p99 {p99 * 1e6:9.2f} µs   sum {sum(ordered):8.3f} s   "
        f"{len(ordered)} calls", flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="What placer costs in a script that keeps it.")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()

    import placer
    from placer import api
    from placer.decision import history

    profile = placer.load_profile()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PLACER_HOME"] = folder  # the history of ten thousand decisions is nobody's
        model = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

        def choose(rows: int) -> placer.Placement:
            return placer.choose(model, (rows, 84), optimizer="adam", profile=profile)

        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {len(list(model.modules()))} modules")
        choose(32)
        show("choose, repeated", per_call(lambda _: choose(32), arguments.calls))
        sizes = torch.randperm(arguments.calls).add(1).tolist()
        with mock.patch.object(api, "_interpolated", return_value=None):
            for rows in sizes[:200]:
                choose(rows)  # fills what is kept of traces
            before = resident()
            show("changing shapes, each traced", per_call(lambda number: choose(sizes[number]), arguments.calls))
            print(f"{'memory':34} {before:.1f} MB -> {resident():.1f} MB")
        deciding.plans.clear()
        traced = 0

        def choose_changing(number: int) -> None:
            nonlocal traced
            traced += not choose(sizes[number]).predictions["cpu"].interpolated

        before = resident()
        show("changing shapes, as it is", per_call(choose_changing, arguments.calls))
        print(f"{'memory':34} {before:.1f} MB -> {resident():.1f} MB")
        print(f"{'traced':34} {traced} of {arguments.calls}")
        print(f"{'history file':34} {history.history_path().stat().st_size / 1e6:.2f} MB")

        placement = choose(32)

        def step(_: int) -> None:
            with placement.step():
                pass

        def nothing(_: int) -> None:
            pass

        empty = statistics.median(per_call(nothing, arguments.steps))
        show("with placement.step(): pass", [s - empty for s in per_call(step, arguments.steps)])


if __name__ == "__main__":
    main()
