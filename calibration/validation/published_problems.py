"""Predictions held against published problems: a few ops in a row, on GPUs that nobody here owns.

KernelBench's problems were no part of what the first networks were fitted to, so they show what is missing in physics.
Every problem is priced as a step whose data stay on the device, without the copy and the wait around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placer.calibration.published import PublishedProblem, read_problems
from placer.calibration.validation.comparison import ERRORS, Comparison, error_figures, publish
from placer.calibration.validation.published_steps import physics_by_label
from placer.pricing import gpu_profile, predict
from placer.profile import Profile, find_gpu
from placer.tracing import Trace

#: Seconds from which a time says more of the device than of its host.
LONG = 1e-3


@dataclass(frozen=True)
class PricedProblem:
    """A published problem beside its price, in seconds.

    ``physics`` is the price without its learnt part. ``family`` names the kernel that takes most of the price.
    ``held_out`` is "problem", "GPU" or "".
    """

    problem: str
    gpu: str
    family: str
    held_out: str
    measured: float
    predicted: float
    low: float
    high: float
    physics: float

    @property
    def level(self) -> str:
        """What the problem's collection calls it: single ops, chains of ops, or networks."""
        return self.problem.partition("/")[0]


def validate_problems(
    *, profile: Profile | None = None, output: Path | None = None, say: Callable[[str], Any] = lambda _: None
) -> int:
    """Price all published problems, print the tables, write a record; returns the exit code.

    ``profile`` is that of the CPU that drives the GPUs; None: the usual host of published measurements. Raises
    PlacerError where the published measurements are not beside the code.
    """
    problems = list(read_problems())
    say(f"predicting {len(problems)} problems")
    priced = [price_problem(problem, profile) for problem in problems]
    return publish([asdict(problem) for problem in priced], tables(priced), output)


def price_problem(problem: PublishedProblem, cpu: Profile | None = None) -> PricedProblem:
    """The price of a problem on its GPU, driven by the host of ``cpu``."""
    trace = Trace(calls=problem.calls, mode="infer", parameters=(), buffers=(), batch=(), outputs=())
    profile = gpu_profile(problem.gpu, cpu)
    device = profile.devices()[0]
    found = predict(trace, profile, devices=[device], data="device")[device]
    outside = found.components.get("copy", 0.0) + found.components.get("sync", 0.0)
    by_label = physics_by_label(trace, find_gpu(problem.gpu))
    return PricedProblem(
        problem.problem,
        problem.gpu,
        max(by_label, key=by_label.__getitem__, default="none"),
        {"held-out network": "problem", "held-out GPU": "GPU"}.get(problem.use, ""),
        problem.seconds,
        found.step_seconds - outside,
        found.low - outside,
        found.high - outside,
        sum(by_label.values()),
    )


def tables(priced: Sequence[PricedProblem]) -> Iterator[str]:
    """The result as Markdown: whole, held out, by level, GPU and family."""
    long = [p for p in priced if p.measured >= LONG]
    yield f"{len(priced)} published times of problems, {len(long)} of them {LONG * 1e3:.0f} ms and more."
    yield from PROBLEMS.table(
        "Problems",
        {
            "all": long,
            "fitted to": [p for p in long if not p.held_out],
            "every fifth problem, held out": [p for p in long if p.held_out == "problem"],
            "a GPU's problems, held out": [p for p in long if p.held_out == "GPU"],
        },
    )
    yield from PROBLEMS.table_by("Level", long, lambda p: p.level)
    yield from PROBLEMS.table_by("GPU", long, lambda p: p.gpu)
    yield from PROBLEMS.table_by("Family", long, lambda p: p.family)


def _figures(group: Sequence[PricedProblem]) -> Iterator[str]:
    yield from error_figures(group)
    yield f"{np.median([abs(p.physics / p.measured - 1.0) for p in group]):.0%}"


PROBLEMS = Comparison("times", (*ERRORS, "physics alone"), _figures)
