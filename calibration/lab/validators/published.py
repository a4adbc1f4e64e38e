"""Predictions held against what others published of GPUs that nobody here owns.

Real networks (``--published``), the same compiled (``--compiled``), and KernelBench's problems, a few ops each
(``--problems``). Each is traced, priced on its GPU by the catalog's knowledge, and put on the timeline, as
``--what-if`` does. The host behind most published times is not known. All are driven by one host here, and what that
costs is in the errors.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from placer.calibration.lab.published import PublishedProblem, PublishedStep, read_problems, read_steps, trace_step
from placer.calibration.lab.validators.rows import ERRORS, Priced, errors, grouped, price_each, report, tables
from placer.calibration.validation.compare import group_by, mean, quantile, score
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.pricing import Prediction, describe_step, gpu_profile, predict
from placer.pricing.gpu import inputs, rows_of
from placer.profile import DataSheet, Profile, find_gpu
from placer.tracing import Trace

#: Steps that are priced where no number is given: each takes a third of a second to trace.
DEFAULT_STEPS = 600
#: Share of a step's time that the device is busy from which on the device bounds it.
DEVICE_BOUND = 0.8
#: Seconds from which a problem's time says more of the device than of its host.
LONG = 1e-3
#: A predicted speed-up counts as right within this factor of the published one.
RIGHT = 1.3


@dataclass(frozen=True)
class PricedStep(Priced):
    """One published step. ``busy``: seconds that its device is; ``roofline`` and ``peak``: what simpler models say."""

    step: PublishedStep
    busy: float
    roofline: float
    peak: float
    provenance: str

    @property
    def device_bound(self) -> bool:
        """Whether the device is busy nearly all of the predicted step."""
        return self.busy >= DEVICE_BOUND * self.predicted


def validate_published(
    profile: Profile | None = None, steps: int | None = None, compiled: bool = False, output: Path | None = None
) -> int:
    """Price up to ``steps`` published steps (None: 600), print and write the tables; returns the exit code.

    With ``compiled``: pairs of a step eager and compiled instead (None: all). ``profile`` is that of the CPU that
    drives the GPUs; None: the usual host of published measurements. The exit code is 1 if not one step can be priced.
    Raises PlacerError where the published measurements are not beside the code.
    """
    published = list(read_steps())
    if compiled:
        pairs = [step for step in published if step.compiled_seconds is not None][:steps]
        speed_ups = list(price_each(pairs, partial(speed_up, cpu=profile), "pairs"))
        return report(speed_ups, compiled_tables(speed_ups), output)
    chosen = spread_out([step for step in published if step.use != "compiled"], steps or DEFAULT_STEPS)
    priced = list(price_each(chosen, partial(price_step, cpu=profile), "steps"))
    return report(priced, step_tables(priced), output)


def spread_out(steps: Sequence[PublishedStep], most: int) -> list[PublishedStep]:
    """At most so many of the steps: of every GPU, dtype and mode in turn."""
    groups = group_by(steps, attrgetter("gpu", "dtype", "mode", "source"))
    turns = zip_longest(*groups.values())
    return list(islice((step for turn in turns for step in turn if step is not None), most))


def price_step(step: PublishedStep, cpu: Profile | None) -> PricedStep:
    """One step beside its price. Raises ImportError, TraceError and UnknownGPU where it cannot have one."""
    trace = trace_step(step)
    sheet = find_gpu(step.gpu)
    price = priced_as_published(step, trace, cpu)
    flops = sum(work.flops for work in describe_step(trace))
    return PricedStep(
        step.seconds,
        price.step_seconds,
        price.low,
        price.high,
        step,
        busy=price.components["compute"],
        roofline=sum(physics_by_label(trace, sheet).values()),
        peak=flops / (sheet.float32_tflops * 1e12),
        provenance=price.provenance,
    )


def priced_as_published(step: PublishedStep, trace: Trace, cpu: Profile | None) -> Prediction:
    """The price of a trace on a step's GPU, with the switches for TF32 as the source had them. Raises UnknownGPU."""
    profile = gpu_profile(step.gpu, cpu)
    device = profile.devices()[0]
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = step.conv_tf32 or step.dtype == "tf32"
    torch.set_float32_matmul_precision("high" if step.dtype == "tf32" else "highest")
    try:
        return predict(trace, profile, devices=[device], data=step.data)[device]
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def physics_by_label(trace: Trace, sheet: DataSheet) -> Mapping[str, float]:
    """The seconds of a trace's kernels by physics alone, by label of kernel."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for work in describe_step(trace):
        for row in rows_of(work):
            floor, _ = inputs(row.kind, np.array([row.columns]), row.dtype, sheet)
            seconds[row.label] += float(floor.launch[0] + floor.seconds[0])
    return seconds


def step_tables(priced: Sequence[PricedStep]) -> Iterator[Table | str]:
    """The steps: whole, held out, and by what they differ in."""
    yield f"{len(priced)} published steps; every fifth network and three GPUs are in no fit."
    bound = [p for p in priced if p.device_bound]
    sizes = sorted(group_by(bound, lambda p: 4 ** int(math.log(max(p.step.batch, 1), 4))).items())
    titles: dict[str, Mapping[str, Sequence[PricedStep]]] = {
        "Steps": {
            "device-bound": bound,
            "device-bound, networks held out": [p for p in bound if p.step.use == "held-out network"],
            "device-bound, GPUs held out": [p for p in bound if p.step.use == "held-out GPU"],
            "device-bound, data sheet only": [p for p in bound if p.provenance == "data sheet"],
            "host-bound (host not known)": [p for p in priced if not p.device_bound],
        },
        "GPU (device-bound)": grouped(bound, "step.gpu"),
        "Family (device-bound)": grouped(bound, "step.family"),
        "Mode (device-bound)": grouped(bound, "step.mode"),
        "Dtype (device-bound)": grouped(bound, "step.dtype"),
        "Source (device-bound)": grouped(bound, "step.source"),
        "Batch (device-bound)": {f"{size} and more": group for size, group in sizes},
    }
    yield from tables(titles, ("steps", *ERRORS, "roofline", "FLOPs / peak", "nearest GPU"), _step_figures)


def _step_figures(group: Sequence[PricedStep]) -> Iterator[str]:
    yield from errors(group)
    yield f"{quantile([abs(p.roofline / p.measured - 1.0) for p in group], 0.5):.0%}"
    yield f"{quantile([abs(p.peak / p.measured - 1.0) for p in group], 0.5):.0%}"
    scaled = _nearest(group)
    yield f"{quantile(scaled, 0.5):.0%}" if scaled else "-"


def _nearest(group: Sequence[PricedStep]) -> list[float]:
    """Errors of the same step measured on the GPU whose peak is nearest, scaled by the ratio of the peaks."""
    off = []
    for steps in group_by(group, attrgetter("step.network", "step.mode", "step.dtype", "step.batch")).values():
        for p in steps:
            others = [q for q in steps if q.step.gpu != p.step.gpu]
            if others:
                near = min(others, key=lambda q: abs(math.log(q.peak / p.peak)))
                off.append(abs(near.measured * p.peak / near.peak / p.measured - 1.0))
    return off


@dataclass(frozen=True)
class SpeedUp(Priced):
    """One step compiled; ``eager`` seconds are what is predicted of the same not compiled."""

    step: PublishedStep
    eager: float

    @property
    def speed_up(self) -> float:
        """What was published: eager over compiled."""
        return self.step.seconds / self.measured

    @property
    def predicted_speed_up(self) -> float:
        return self.eager / self.predicted


def speed_up(step: PublishedStep, cpu: Profile | None) -> SpeedUp:
    """One pair beside its predictions, both of one trace. Raises as ``price_step`` does."""
    assert step.compiled_seconds is not None
    trace = trace_step(step, compiled=True)
    eager = priced_as_published(step, replace(trace, compiled=None), cpu)
    price = priced_as_published(step, trace, cpu)
    return SpeedUp(step.compiled_seconds, price.step_seconds, price.low, price.high, step, eager.step_seconds)


def looked_at(network: str) -> bool:
    """Whether a network may be looked at while the price of compiled steps is made: every second one, by its name.

    The source and the weights are no part of the name, so that no network is in both halves.
    """
    name = network.rpartition(":")[2].lower().partition(".")[0]
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def compiled_tables(pairs: Sequence[SpeedUp]) -> Iterator[Table | str]:
    """Both halves of the networks, then the half that was not looked at by what differs."""
    yield f"{len(pairs)} published steps, eager and compiled; no two alike in network, GPU and torch, in no fit."
    seen = [pair for pair in pairs if looked_at(pair.step.network)]
    apart = [pair for pair in pairs if not looked_at(pair.step.network)]
    titles: dict[str, Mapping[str, Sequence[SpeedUp]]] = {
        "Networks": {"looked at": seen, "not looked at": apart},
        "GPU (not looked at)": grouped(apart, "step.gpu"),
        "Mode (not looked at)": grouped(apart, "step.mode"),
        "Torch (not looked at)": grouped(apart, "step.torch"),
        "Family (not looked at)": grouped(apart, "step.family"),
    }
    columns = (
        "pairs", "published speed-up", "predicted", "predicted / published: median", "5–95 %", f"within {RIGHT}x",
        "compiled step: median error", "in interval",
    )  # fmt: skip
    yield from tables(titles, columns, _speed_up_figures)


def _speed_up_figures(group: Sequence[SpeedUp]) -> Iterator[str]:
    ratios = [pair.predicted_speed_up / pair.speed_up for pair in group]
    compiled = score(group)
    yield f"{quantile([pair.speed_up for pair in group], 0.5):.2f}x"
    yield f"{quantile([pair.predicted_speed_up for pair in group], 0.5):.2f}x"
    yield f"{quantile(ratios, 0.5):.2f}"
    yield f"{quantile(ratios, 0.05):.2f}–{quantile(ratios, 0.95):.2f}"
    yield f"{mean(abs(math.log(ratio)) <= math.log(RIGHT) for ratio in ratios):.0%}"
    yield f"{compiled.median_error:.1%}"
    yield f"{compiled.inside:.0%}"


@dataclass(frozen=True)
class PricedProblem(Priced):
    """A published problem: ``physics`` is its price without the learnt part, ``family`` the kernel that takes most."""

    problem: PublishedProblem
    family: str
    physics: float

    @property
    def level(self) -> str:
        """What the problem's collection calls it: single ops, chains of ops, or networks."""
        return self.problem.problem.partition("/")[0]


def validate_problems(profile: Profile | None = None, output: Path | None = None) -> int:
    """Price all published problems, print and write the tables; returns the exit code.

    ``profile`` is that of the CPU that drives the GPUs; None: the usual host of published measurements. Raises
    PlacerError where the published measurements are not beside the code.
    """
    problems = list(read_problems())
    say(f"predicting {len(problems)} problems")
    priced = [price_problem(problem, profile) for problem in problems]
    return report(priced, problem_tables(priced), output)


def price_problem(problem: PublishedProblem, cpu: Profile | None = None) -> PricedProblem:
    """The price of a problem on its GPU: of a step whose data stay there, without the copy and the wait around it."""
    trace = Trace(calls=problem.calls, mode="infer", parameters=(), buffers=(), batch=(), outputs=())
    profile = gpu_profile(problem.gpu, cpu)
    device = profile.devices()[0]
    price = predict(trace, profile, devices=[device], data="device")[device]
    outside = price.components.get("copy", 0.0) + price.components.get("sync", 0.0)
    by_label = physics_by_label(trace, find_gpu(problem.gpu))
    return PricedProblem(
        problem.seconds,
        price.step_seconds - outside,
        price.low - outside,
        price.high - outside,
        problem,
        family=max(by_label, key=by_label.__getitem__, default="none"),
        physics=sum(by_label.values()),
    )


def problem_tables(priced: Sequence[PricedProblem]) -> Iterator[Table | str]:
    """The problems: whole, held out, by level, GPU and family."""
    long = [p for p in priced if p.measured >= LONG]
    yield f"{len(priced)} published times of problems, {len(long)} of them {LONG * 1e3:.0f} ms and more."
    titles: dict[str, Mapping[str, Sequence[PricedProblem]]] = {
        "Problems": {
            "all": long,
            "fitted to": [p for p in long if p.problem.use not in ("held-out network", "held-out GPU")],
            "every fifth problem, held out": [p for p in long if p.problem.use == "held-out network"],
            "a GPU's problems, held out": [p for p in long if p.problem.use == "held-out GPU"],
        },
        "Level": grouped(long, "level"),
        "GPU": grouped(long, "problem.gpu"),
        "Family": grouped(long, "family"),
    }
    yield from tables(titles, ("times", *ERRORS, "physics alone"), _problem_figures)


def _problem_figures(group: Sequence[PricedProblem]) -> Iterator[str]:
    yield from errors(group)
    yield f"{quantile([abs(p.physics / p.measured - 1.0) for p in group], 0.5):.0%}"
