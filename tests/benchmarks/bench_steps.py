"""Predicted beside measured step times on the CPU: the Conv1d regressor, ResNet-50 and BERT-base.

    python tests/benchmarks/bench_steps.py [PROFILE]

Prediction first, then at least seven real steps; the median is compared. Nothing is asserted: times depend on the day.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, ResNetConfig, ResNetForImageClassification

from placer import profile
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.pricing.predict import predict
from placer.tracing import trace
from placer.workload import make_workload


def networks() -> Iterator[tuple[str, nn.Module, list[Any]]]:
    yield "Conv1d regressor", Conv1dRegressor(), [torch.randn(n, 84) for n in (16, 512, 1024, 4096)]
    yield "ResNet-50", ResNetForImageClassification(ResNetConfig()), [torch.randn(8, 3, 224, 224)]
    yield "BERT-base", BertModel(BertConfig()), [torch.randint(0, 30000, (4, 128))]


def measure(step: Step) -> float:
    for _ in range(2):
        step()
    seconds = []
    start = time.perf_counter()
    while len(seconds) < 7 or (time.perf_counter() - start < 1.0 and len(seconds) < 300):
        before = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)


def main() -> None:
    known = profile.load(sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"profile of {known.created}; {torch.get_num_threads()} threads")
    print(f"{'network':18}{'batch':>16}{'mode':>7}{'predicted':>12}{'measured':>12}{'ratio':>7}   interval / measured")
    for name, model, batches in networks():
        for batch in batches:
            for mode in ("train", "infer"):
                model.train(mode == "train")
                optimizer = make_optimizer(model, "adam") if mode == "train" else None
                workload = make_workload(model, example=batch, mode=mode, optimizer="adam" if optimizer else None)
                p = predict(trace(workload), known, devices=["cpu"])["cpu"]
                real = measure(Step(workload, "cpu", optimizer))
                shape = "x".join(map(str, batch.shape))
                print(
                    f"{name:18}{shape:>16}{mode:>7}{p.step_seconds * 1e3:9.2f} ms{real * 1e3:9.2f} ms"
                    f"{p.step_seconds / real:7.2f}   {p.low / real:.2f} to {p.high / real:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
