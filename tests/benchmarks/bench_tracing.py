"""How long a trace takes: ``python tests/benchmarks/bench_tracing.py``. Prints milliseconds, asserts nothing.

Cold is the first trace of a model in a fresh process, warm the median of the following ones.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from torch import nn

NAMES = ("mlp", "resnet50", "bert", "gpt2", "lstm")


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model and its example input."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)), {"batch_shape": (32, 20)}
    if name == "lstm":
        return nn.LSTM(16, 64, 2), {"batch_shape": (50, 32, 16)}
    import transformers as t

    if name == "resnet50":
        return t.ResNetForImageClassification(t.ResNetConfig()), {"batch_shape": (8, 3, 224, 224)}
    if name == "bert":
        return t.BertModel(t.BertConfig()), {"example": {"input_ids": torch.zeros(4, 128, dtype=torch.long)}}
    return t.GPT2LMHeadModel(t.GPT2Config()), {"example": {"input_ids": torch.zeros(1, 128, dtype=torch.long)}}


def measure(name: str) -> None:
    """Print one line for one model."""
    from placer.tracing import trace
    from placer.workload import make_workload

    torch.set_num_threads(1)
    model, example = build(name)
    workload = make_workload(model, mode="train", **example)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        traced = trace(workload)
        times.append((time.perf_counter() - start) * 1e3)
    warm = statistics.median(times[1:])
    print(f"{name:10s} cold {times[0]:7.1f} ms  warm {warm:7.1f} ms  {len(traced.calls):5d} calls")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for each in NAMES:
            subprocess.run([sys.executable, __file__, each], check=True)
