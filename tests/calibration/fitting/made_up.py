"""A made-up device, whose numbers are known: its steps take what the cost model says, but for a little noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from priced import elementwise, product

from placer import profile
from placer.calibration.fitting.nearest import Expectation
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import CostModel, Work
from placer.profile import Device

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}
FRAMEWORK = {"step": 2e-5, "forward_op": 1e-6, "python_call": 3e-6}
NOISE = 0.02
#: Machines that come with placer: the made-up device has the numbers of the first, and the other is unlike it.
MADE_UP, UNLIKE = "intel-xeon-avx512-2-core", "amd-epyc-avx512-2-core"
FAMILIES = ("matmul", "elementwise")


@cache
def device(name: str = MADE_UP) -> Device:
    """The made-up device, or one of other numbers, as if it had been measured at length."""
    known = profile.load(name).fit("cpu", 2)
    families = {family: known.families[family] for family in FAMILIES}
    interval = {"base": 0.1, "ops": 0.5, "held_out": 0.2}
    return replace(known, rates=RATES, families=families, framework=FRAMEWORK, interval=interval)


def unlike() -> Expectation:
    """What a machine of another class expects."""
    return Expectation(device(UNLIKE), name=UNLIKE)


def alike(**interval: float) -> Expectation:
    """What a machine of the device's own class expects, which is the device itself."""
    known = device()
    return Expectation(replace(known, interval={**known.interval, **interval}), same_class=True, name=MADE_UP)


def made_up_work(random: np.random.Generator) -> Work:
    """A product, an addition or an exponential function, of any size."""
    if random.random() < 0.5:
        return product(*np.exp(random.uniform(np.log(8), np.log(1024), 3)).tolist())
    numel = float(np.exp(random.uniform(np.log(64), np.log(1 << 20))))
    return elementwise(str(random.choice(["aten::add", "aten::exp"])), numel, 12 * numel)


def observed(
    works: Sequence[Work], seconds: Sequence[float], random: np.random.Generator, noise: float = NOISE
) -> list[OpObservation]:
    """These ops as they are measured, one to three of each in a step."""
    return [
        OpObservation(
            work.family,
            work.op,
            work.dtype,
            work.features,
            each * math.exp(random.normal(0, noise)),
            0.0,
            0.02,
            int(random.integers(1, 4)),
        )
        for work, each in zip(works, seconds, strict=True)
    ]


def steps(count: int, seed: int, *, costs: Mapping[str, float] = FRAMEWORK) -> list[StepObservation]:
    """Networks of one to eight ops each, around which the framework takes these ``costs``."""
    random = np.random.default_rng(seed)
    works = [[made_up_work(random) for _ in range(int(random.integers(1, 9)))] for _ in range(count)]
    prices, _, _ = CostModel(device()).price_works([work for each in works for work in each])
    taken, found = iter(prices), []
    for i, own in enumerate(works):
        ops = observed(own, [next(taken) for _ in own], random)
        counts = {
            "step": 1.0,
            "forward_op": float(sum(op.count for op in ops)),
            "python_call": float(random.integers(0, 30)),
        }
        total = op_seconds(ops) + sum(costs[name] * number for name, number in counts.items())
        seconds = total * math.exp(random.normal(0, NOISE))
        found.append(StepObservation("cpu", 2, "network", f"step {i}", seconds, 0.02, counts, tuple(ops)))
    return found


def op_seconds(ops: Sequence[OpObservation]) -> float:
    return sum((op.seconds or 0.0) * op.count for op in ops)


def slower(steps_of: Sequence[StepObservation], **factors: float) -> list[StepObservation]:
    """The same steps on a machine whose ops of a family take so many times longer."""
    found = []
    for step in steps_of:
        ops = tuple(replace(op, seconds=(op.seconds or 0.0) * factors[op.family]) for op in step.ops)
        found.append(replace(step, ops=ops, seconds=step.seconds + op_seconds(ops) - op_seconds(step.ops)))
    return found


def times(step: StepObservation, factor: float) -> StepObservation:
    """The same step where all in it takes so many times as long."""
    ops = tuple(replace(op, seconds=factor * (op.seconds or 0.0)) for op in step.ops)
    return replace(step, seconds=factor * step.seconds, ops=ops)
