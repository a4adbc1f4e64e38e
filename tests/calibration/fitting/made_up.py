"""A made-up device: steps whose time is known but for a little noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from priced import elementwise, product

from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing.framework import BACKWARD, FORWARD

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}
FRAMEWORK = {"step": 2e-5, "forward_op": 1e-6, "python_call": 3e-6}
NOISE = 0.02


def made_up_op(random: np.random.Generator) -> OpObservation:
    """An op of the made-up device: a latency, arithmetic and traffic, and an efficiency that varies smoothly."""
    if random.random() < 0.5:
        m, k, n = np.exp(random.uniform(np.log(8), np.log(1024), 3)).tolist()
        work = product(m, n, k)
        seconds = (4e-6 + work.flops / 3e10 + work.bytes / 2e10) * (1 + 0.5 * math.exp(-m / 100))
    else:
        numel = float(np.exp(random.uniform(np.log(64), np.log(1 << 20))))
        moved, op = 12 * numel, str(random.choice(["aten::add", "aten::exp"]))
        seconds = (2e-6 + moved / 8e9) * (2.0 if op == "aten::exp" else 1.0)
        work = elementwise(op, numel, moved)
    measured, count = seconds * math.exp(random.normal(0, NOISE)), int(random.integers(1, 4))
    return OpObservation(work.family, work.op, work.dtype, work.features, measured, 0.0, 0.02, count)


def steps(count: int, seed: int) -> list[StepObservation]:
    """Networks of one to eight ops each."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        ops = tuple(made_up_op(random) for _ in range(int(random.integers(1, 9))))
        counts = {
            "step": 1.0, "forward_op": float(sum(op.count for op in ops)), "python_call": float(random.integers(0, 30)),
        }  # fmt: skip
        own = sum(FRAMEWORK[name] * count for name, count in counts.items())
        total = sum((op.seconds or 0.0) * op.count for op in ops) + own
        seconds = total * math.exp(random.normal(0, NOISE))
        found.append(StepObservation("cpu", 2, "network", f"step {i}", seconds, 0.02, counts, ops))
    return found


def in_phases(count: int, costs: dict[str, float], *, apart: bool) -> list[StepObservation]:
    """Networks in which functions and nodes grow with the depth, timed as a whole or phase by phase."""
    random = np.random.default_rng(7)
    found = []
    for i in range(count):
        depth = float(random.integers(1, 40))
        counts = {"step": 1.0, "training_step": 1.0, "python_call": 5 * depth + random.integers(0, 2),
                  "autograd_node": 2 * depth + 1}  # fmt: skip
        spent = {
            phase: sum(costs.get(name, 0.0) * counts.get(name, 0.0) for name in names) * math.exp(random.normal(0, 0.1))
            for phase, names in (("forward", FORWARD), ("backward", BACKWARD))
        }
        op = made_up_op(random)
        seconds = sum(spent.values()) + (op.seconds or 0.0) * op.count
        found.append(StepObservation("cpu", 2, "network", f"step {i}", seconds, 0.02, counts, (op,),
                                     gaps=spent if apart else {}))  # fmt: skip
    return found


def slower(observed: list[StepObservation], **factors: float) -> list[StepObservation]:
    """The same steps on a machine whose ops of a family take so many times longer."""
    found = []
    for step in observed:
        ops = tuple(replace(op, seconds=(op.seconds or 0.0) * factors[op.family]) for op in step.ops)
        more = sum((o.seconds or 0.0) * o.count for o in ops) - sum((o.seconds or 0.0) * o.count for o in step.ops)
        found.append(replace(step, ops=ops, seconds=step.seconds + more))
    return found
