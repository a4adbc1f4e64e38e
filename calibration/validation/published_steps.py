"""Predictions held against published steps: real networks on GPUs that nobody here owns.

Every step is traced, priced on its GPU by the catalog's knowledge, and put on the timeline, as ``--what-if`` does. The
host behind most published times is not known. All are driven by one host here, and what that costs is in the errors.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from placer.calibration.published import PublishedStep, read_steps, trace_step
from placer.calibration.validation.comparison import ERRORS, Comparison, error_figures, price_each, publish
from placer.calibration.validation.scores import group_by
from placer.pricing import describe_step, gpu_profile, predict
from placer.pricing.gpu import inputs, rows_of
from placer.profile import DataSheet, Profile, find_gpu
from placer.tracing import Trace

#: Steps that are priced where no number is given: each takes a third of a second to trace.
DEFAULT_STEPS = 600
#: Share of a step's time that the device is busy from which on the device bounds it.
DEVICE_BOUND = 0.8


@dataclass(frozen=True)
class PricedStep:
    """One published step beside what is predicted for it; seconds throughout."""

    source: str
    gpu: str
    network: str
    family: str
    mode: str
    dtype: str
    batch: int
    measured: float
    predicted: float
    low: float
    high: float
    busy: float
    roofline: float
    peak: float
    provenance: str
    held_out: str

    @property
    def device_bound(self) -> bool:
        """Whether the device is busy nearly all of the predicted step."""
        return self.busy >= DEVICE_BOUND * self.predicted


def validate_published(
    *,
    profile: Profile | None = None,
    steps: int | None = None,
    output: Path | None = None,
    say: Callable[[str], Any] = lambda _: None,
) -> int:
    """Price up to ``steps`` published steps (None: 600), print the tables, write a record; returns the exit code.

    ``profile`` is that of the CPU that drives the GPUs; None: the usual host of published measurements. The exit code
    is 1 if not one step can be priced. Raises PlacerError where the published measurements are not beside the code.
    """
    published = [step for step in read_steps() if step.use != "compiled"]
    priced = list(price_steps(spread_out(published, steps or DEFAULT_STEPS), profile, say))
    return publish([vars(step) for step in priced], tables(priced), output)


def spread_out(steps: Sequence[PublishedStep], most: int) -> list[PublishedStep]:
    """At most so many of the steps: of every GPU, dtype and mode in turn."""
    groups = group_by(steps, lambda step: (step.gpu, step.dtype, step.mode, step.source))
    turns = zip_longest(*groups.values())
    return list(islice((step for turn in turns for step in turn if step is not None), most))


def price_steps(
    steps: Sequence[PublishedStep], cpu: Profile | None, say: Callable[[str], Any] = lambda _: None
) -> Iterator[PricedStep]:
    """Each step that can be built, priced. Those that cannot are counted by reason in the last line said."""
    return price_each(steps, lambda step: _priced_step(step, trace_step(step), cpu), "steps", say)


def _priced_step(step: PublishedStep, trace: Trace, cpu: Profile | None) -> PricedStep:
    sheet, profile = find_gpu(step.gpu), gpu_profile(step.gpu, cpu)
    device = profile.devices()[0]
    with as_published(step):
        found = predict(trace, profile, devices=[device], data=step.data)[device]
    roofline, flops = _bounds(trace, sheet)
    held_out = {"held-out GPU": "GPU", "held-out network": "network"}.get(step.use, "")
    return PricedStep(
        step.source,
        step.gpu,
        step.network,
        step.family,
        step.mode,
        step.dtype,
        step.batch,
        step.seconds,
        found.step_seconds,
        found.low,
        found.high,
        found.components["compute"],
        roofline,
        flops / (sheet.float32_tflops * 1e12),
        found.provenance,
        held_out,
    )


@contextlib.contextmanager
def as_published(step: PublishedStep) -> Iterator[None]:
    """The switches for TF32 as the source had them."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = step.conv_tf32 or step.dtype == "tf32"
    torch.set_float32_matmul_precision("high" if step.dtype == "tf32" else "highest")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def _bounds(trace: Trace, sheet: DataSheet) -> tuple[float, float]:
    """(seconds by the roofline of every op, FLOPs)."""
    return sum(physics_by_label(trace, sheet).values()), sum(work.flops for work in describe_step(trace))


def physics_by_label(trace: Trace, sheet: DataSheet) -> Mapping[str, float]:
    """The seconds of a trace's kernels by physics alone, by label of kernel."""
    found: defaultdict[str, float] = defaultdict(float)
    for work in describe_step(trace):
        for row in rows_of(work):
            floor, _ = inputs(row.kind, np.array([row.columns]), row.dtype, sheet)
            found[row.label] += float(floor.launch[0] + floor.seconds[0])
    return found


def tables(priced: Sequence[PricedStep]) -> Iterator[str]:
    """The result as Markdown: whole, held out, and by what steps differ in."""
    yield f"{len(priced)} published steps; every fifth network and three GPUs are in no fit."
    bound = [p for p in priced if p.device_bound]
    yield from STEPS.table(
        "Steps",
        {
            "device-bound": bound,
            "device-bound, networks held out": [p for p in bound if p.held_out == "network"],
            "device-bound, GPUs held out": [p for p in bound if p.held_out == "GPU"],
            "device-bound, data sheet only": [p for p in bound if p.provenance == "data sheet"],
            "host-bound (host not known)": [p for p in priced if not p.device_bound],
        },
    )
    yield from STEPS.table_by("GPU (device-bound)", bound, lambda p: p.gpu)
    yield from STEPS.table_by("Family (device-bound)", bound, lambda p: p.family)
    yield from STEPS.table_by("Mode (device-bound)", bound, lambda p: p.mode)
    yield from STEPS.table_by("Dtype (device-bound)", bound, lambda p: p.dtype)
    yield from STEPS.table_by("Source (device-bound)", bound, lambda p: p.source)
    sizes = sorted(group_by(bound, lambda p: 4 ** int(math.log(max(p.batch, 1), 4))).items())
    yield from STEPS.table("Batch (device-bound)", {f"{size} and more": group for size, group in sizes})


def _figures(group: Sequence[PricedStep]) -> Iterator[str]:
    yield from error_figures(group)
    measured = np.array([p.measured for p in group])
    for values in ([p.roofline for p in group], [p.peak for p in group]):
        yield f"{np.median(np.abs(np.array(values) / measured - 1.0)):.0%}"
    scaled = _nearest(group)
    yield f"{np.median(scaled):.0%}" if scaled else "-"


def _nearest(group: Sequence[PricedStep]) -> list[float]:
    """Errors of the same step measured on the GPU whose peak is nearest, scaled by the ratio of the peaks."""
    found = []
    for steps in group_by(group, lambda p: (p.network, p.mode, p.dtype, p.batch)).values():
        for p in steps:
            others = [q for q in steps if q.gpu != p.gpu]
            if others:
                near = min(others, key=lambda q: abs(math.log(q.peak / p.peak)))
                found.append(abs(near.measured * p.peak / near.peak / p.measured - 1.0))
    return found


STEPS = Comparison("steps", (*ERRORS, "roofline", "FLOPs / peak", "nearest GPU"), _figures)
