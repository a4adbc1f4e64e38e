"""How long a fleet takes to price after its trace.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_fleet.py [--rounds 7]

``catalog``: a deep convolutional network in training (620 op calls) on every GPU of the catalog. ``fleet``: a policy
and a small convolutional network in training on 20 kinds of machines, ten CPUs and ten GPUs. ``first`` is the first
time in this process, ``again`` the median of the later ones, each after a trace of its own. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import statistics
import time

from torch import nn

from placer import profile as profiles
from placer.fleets import Machine, compare, cpu_class, traced
from placer.workload import Workload, make_workload

CPUS = ("amd-epyc-2-core", "amd-epyc-avx512-2-core-busy", "amd-epyc-avx512-2-core", "intel-xeon-avx512-2-core")
GPUS = ("T4", "V100", "A100", "H100", "RTX 4090", "A10", "L4", "P100", "A40", "RTX 3090")


def convolutional(layers: int, width: int, size: int) -> Workload:
    found: list[nn.Module] = []
    for number in range(layers):
        found += [nn.Conv2d(width if number else 3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*found, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return make_workload(model, (8, 3, size, size), mode="train")


def policy() -> Workload:
    layers = nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)
    return make_workload(nn.Sequential(*layers), (64, 8), mode="train")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a fleet takes to price after its trace.")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    cpus = [*map(profiles.load_cached, CPUS), *map(cpu_class, (2, 4, 8, 16, 32, 64))]
    catalog = [Machine(name, cpus[0], gpu=name, devices=("cuda", "xpu", "mps")) for name in profiles.gpus()]
    fleet = [Machine(cpu.name, cpu, devices=("cpu",)) for cpu in cpus]
    fleet += [Machine(name, cpu, gpu=name, devices=("cuda",)) for name, cpu in zip(GPUS, cpus, strict=True)]
    for what, workload, machines in (
        ("catalog", convolutional(50, 64, 64), catalog), ("fleet, policy", policy(), fleet),
        ("fleet, images", convolutional(6, 32, 32), fleet),
    ):  # fmt: skip
        seconds = []
        for _ in range(rounds):
            known = traced(workload)
            started = time.perf_counter()
            compare(known, machines)
            seconds.append(time.perf_counter() - started)
        (_, _, trace), = known.parts
        times = f"first {seconds[0] * 1e3:5.0f} ms, again {statistics.median(seconds[1:]) * 1e3:5.0f} ms"
        print(f"{what:14} {len(trace.calls):4} op calls, {len(machines):3} kinds: {times}", flush=True)


if __name__ == "__main__":
    main()
