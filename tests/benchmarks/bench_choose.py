"""How long ``choose`` takes, beside one CPU training step of the same network.

    python tests/benchmarks/bench_choose.py [--processes 5] [--no-step] [NETWORK...]

One row per network; nothing is asserted, times depend on the day. ``cold`` is the first ``choose`` of a fresh process,
with all it has to read and import (torch and the network's own library are there), ``load`` what reading this
machine's profile takes of it, ``share`` is ``cold`` over the real ``step`` (forward, loss, backward, Adam; with the
threads the process has). ``again`` is ``choose`` on the same model object, ``other`` the first one on another instance
of the architecture, ``changed`` the first one after an attribute of a submodule changed. Medians over the processes,
``again`` also over the calls of one; the step is taken in the first process only. One process more comes first and does
not count: it leaves the bytecode that an installed package has.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

AGAIN = 300


@dataclass(frozen=True)
class Network:
    build: Callable[[], nn.Module]
    example: Any
    loss: Callable[[Any], Tensor] | None = None


def network(name: str) -> Network:
    from placer.calibration.suite import entry, images, sequences

    if name == "resnet50":
        build: Callable[[], nn.Module] = lambda: images.resnet([3, 4, 6, 3], [256, 512, 1024, 2048], "bottleneck")  # noqa: E731
        return Network(build, images.pixel_values(224)(8), entry.label_loss)
    if name == "gpt2":
        example = sequences.labelled_tokens(128, 50257)(2)
        return Network(lambda: sequences.gpt2(12, 768, 12, 50257), example, entry.loss_inside)
    if name == "bert":
        return Network(lambda: sequences.bert(12, 768, 12, 30522), sequences.tokens(128, 30522)(4))
    if name == "lstm":
        return Network(lambda: nn.LSTM(64, 256, num_layers=2, batch_first=True), torch.randn(32, 50, 64))
    raise ValueError(f"unknown network {name!r}: one of {', '.join(NAMES)} is accepted")


NAMES = ("resnet50", "gpt2", "bert", "lstm")


def measure(name: str, with_step: bool) -> dict[str, float]:
    """Seconds of everything, in this process."""
    net = network(name)
    model, other = net.build().train(), net.build().train()
    import placer
    from placer import profile

    def choose(model: nn.Module) -> float:
        started = time.perf_counter()
        placement = placer.choose(model, example=net.example, loss=net.loss, optimizer="adam")
        seconds = time.perf_counter() - started
        assert placement.predictions, placement.reason
        return seconds

    found = {"cold": choose(model)}
    started = time.perf_counter()
    profile.load(samples=False)
    found["load"] = time.perf_counter() - started
    found["again"] = statistics.median(choose(model) for _ in range(AGAIN))
    found["other"] = choose(other)
    next(module for module in other.modules() if not list(module.children())).extra = 1  # type: ignore[assignment]
    found["changed"] = choose(other)
    del other
    gc.collect()
    if with_step:
        found["step"] = step_seconds(model, net)
    return found


def step_seconds(model: nn.Module, net: Network) -> float:
    from placer.calibration.measuring.step import Step, make_optimizer
    from placer.workload import make_workload

    workload = make_workload(model, example=net.example, loss=net.loss, mode="train", optimizer="adam")
    step = Step(workload, "cpu", make_optimizer(model, "adam"))
    for _ in range(2):
        step()
    seconds = []
    while len(seconds) < 5:
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def in_process(name: str, with_step: bool) -> dict[str, float]:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, *([] if with_step else ["--no-step"])]
    writing = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=writing).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="How long choose takes.")
    parser.add_argument("networks", nargs="*", default=NAMES)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--no-step", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, not arguments.no_step)))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.processes} processes")
    columns = ("cold", "load", "other", "changed", "again", "step")
    print(f"{'network':10}" + "".join(f"{name:>11}" for name in columns) + f"{'share':>9}")
    for name in arguments.networks:
        in_process(name, with_step=False)
        runs = [in_process(name, with_step=not (arguments.no_step or number)) for number in range(arguments.processes)]
        median = {key: statistics.median(run[key] for run in runs if key in run) for key in runs[0]}
        cells = [f"{median[key] * 1e3:8.1f} ms" if key != "again" else f"{median[key] * 1e6:8.0f} us"
                 for key in columns if key in median]  # fmt: skip
        share = f"{median['cold'] / median['step']:8.1%}" if "step" in median else ""
        print(f"{name:10}" + "".join(cells) + " " + share, flush=True)


if __name__ == "__main__":
    main()
