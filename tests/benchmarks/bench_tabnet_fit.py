"""What ``TabNetRegressor.fit`` takes for a batch, beside what placer predicts of its step.

    python tests/benchmarks/bench_tabnet_fit.py [--batches 20] [--rounds 3] [--output FILE]

Nothing is asserted, times depend on the day. Uses this machine's profile (run placer calibrate first) and the
estimator of the reference system *one-dimensional data*. ``step`` is the trainer's step as its callbacks see it begin
and end; ``batch`` is the time from one step to the next, which the DataLoader's share of a batch belongs to: rows are
collected one by one in Python. The first two batches of an epoch are left out: they warm up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_tabnet.callbacks import Callback
from pytorch_tabnet.tab_model import TabNetRegressor

from placer.integrations import pytorch_tabnet as integration

BATCHES = (128, 512, 1024, 4096)
FEATURES, WARM_UP = 84, 2
SETTINGS = {"n_d": 17, "n_a": 17, "n_steps": 1, "gamma": 1.5, "n_independent": 2, "n_shared": 2}


class Times(Callback):  # type: ignore[misc]
    """When each step began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[float] = []
        self.ended: list[float] = []

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.began.append(time.perf_counter())

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended.append(time.perf_counter())


def fitted(rows: Any, targets: Any, batch: int) -> tuple[list[float], list[float]]:
    """Seconds of each step, and from each step to the next, of one epoch."""
    times = Times()
    estimator = TabNetRegressor(device_name="cpu", verbose=0, **SETTINGS)
    estimator.fit(
        rows, targets, max_epochs=1, batch_size=batch, virtual_batch_size=128, callbacks=[times],
        compute_importance=False,
    )  # fmt: skip
    steps = [end - start for start, end in zip(times.began, times.ended, strict=True)]
    whole = [later - start for start, later in zip(times.began, times.began[1:], strict=False)]
    return steps[WARM_UP:], whole[WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20, help="batches of an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    random = np.random.default_rng(0)
    rows = random.normal(size=(max(BATCHES) * arguments.batches, FEATURES)).astype(np.float32)
    targets = rows[:, :1] * rows[:, 1:2]
    seen: dict[int, tuple[list[float], list[float]]] = {batch: ([], []) for batch in BATCHES}
    for _ in range(arguments.rounds):
        for batch in BATCHES:  # in turns: a machine that changes pace changes it for all of them
            found = fitted(rows[: batch * arguments.batches], targets[: batch * arguments.batches], batch)
            for kept, more in zip(seen[batch], found, strict=True):
                kept.extend(more)
    print("| batch | predicted | step | predicted over step | batch, with its DataLoader | predicted of it |")
    print("|---|---|---|---|---|---|")
    results = []
    for batch, (steps, whole) in seen.items():
        placement = integration.choose(
            TabNetRegressor(verbose=0, **SETTINGS), rows[: 2 * batch], targets[: 2 * batch], batch_size=batch,
            devices="cpu",
        )  # fmt: skip
        row = placement.explain().parts[0].devices["cpu"]
        predicted = row.step_seconds - row.components["loading"]
        step, period = statistics.median(steps), statistics.median(whole)
        results.append({
            "batch": batch, "predicted": predicted, "step": step, "period": period,
            "predicted_period": row.step_seconds,
        })  # fmt: skip
        print(
            f"| {batch} | {predicted * 1e3:.2f} ms | {step * 1e3:.2f} ms | {predicted / step:.2f} | "
            f"{period * 1e3:.2f} ms | {row.step_seconds * 1e3:.2f} ms |"
        )
    if arguments.output:
        document = {"threads": torch.get_num_threads(), "rows": results}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
