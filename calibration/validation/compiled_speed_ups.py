"""What ``torch.compile`` gains on published steps, beside what is predicted to be gained.

Every pair is the same step of the same network, eager and compiled, by the same source on the same GPU. The step is
traced once and priced both ways, as a user's would be. Half of the networks, by a hash of their names, were looked at
while the price of compiled steps was made; the other half was only priced.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from placer.calibration.published import PublishedStep, read_steps, trace_step
from placer.calibration.validation.comparison import Comparison, price_each, publish
from placer.calibration.validation.published_steps import as_published
from placer.pricing import gpu_profile, predict
from placer.profile import Profile
from placer.tracing import Trace

#: A predicted speed-up counts as right within this factor of the published one.
RIGHT = 1.3


@dataclass(frozen=True)
class SpeedUp:
    """One step, eager and compiled, in seconds; ``low`` and ``high`` bound what is predicted of the compiled one."""

    gpu: str
    torch: str
    network: str
    family: str
    mode: str
    batch: int
    looked_at: bool
    eager: float
    compiled: float
    predicted_eager: float
    predicted_compiled: float
    low: float
    high: float
    priced_as_compiled: bool

    @property
    def published(self) -> float:
        return self.eager / self.compiled

    @property
    def predicted(self) -> float:
        return self.predicted_eager / self.predicted_compiled


def validate_compiled(
    *,
    profile: Profile | None = None,
    steps: int | None = None,
    output: Path | None = None,
    say: Callable[[str], Any] = lambda _: None,
) -> int:
    """Price up to ``steps`` published pairs (None: all), print the tables, write a record.

    ``profile`` is that of the CPU that drives the GPUs; None: the usual host of published measurements. The exit code
    is 1 if not one pair can be priced. Raises PlacerError where the published measurements are not beside the code.
    """
    pairs = list(islice((step for step in read_steps() if step.compiled_seconds is not None), steps))
    found = list(speed_ups(pairs, profile, say))
    return publish([asdict(pair) for pair in found], tables(found), output)


def speed_ups(
    pairs: Sequence[PublishedStep],
    cpu: Profile | None,
    say: Callable[[str], Any] = lambda _: None,
    traced: Callable[[PublishedStep], Trace] = lambda step: trace_step(step, compiled=True),
) -> Iterator[SpeedUp]:
    """Each pair that can be built, priced. Those that cannot are counted by reason in the last lines said."""
    return price_each(pairs, lambda step: priced(step, traced(step), cpu), "pairs", say)


def priced(step: PublishedStep, trace: Trace, cpu: Profile | None) -> SpeedUp:
    """One pair beside its predictions. ``trace`` is that of the compiled step."""
    assert step.compiled_seconds is not None
    profile = gpu_profile(step.gpu, cpu)
    device = profile.devices()[0]
    with as_published(step):
        eager = predict(replace(trace, compiled=None), profile, devices=[device], data=step.data)[device]
        compiled = predict(trace, profile, devices=[device], data=step.data)[device]
    return SpeedUp(
        step.gpu,
        step.torch or "unknown",
        step.network,
        step.family,
        step.mode,
        step.batch,
        looked_at(step.network),
        step.seconds,
        step.compiled_seconds,
        eager.step_seconds,
        compiled.step_seconds,
        compiled.low,
        compiled.high,
        compiled.priced.compilation is not None,
    )


def looked_at(network: str) -> bool:
    """Whether a network may be looked at while the price of compiled steps is made: every second one, by its name.

    The source and the weights are no part of the name, so that no network is in both halves.
    """
    name = network.rpartition(":")[2].lower().partition(".")[0]
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def tables(found: Sequence[SpeedUp]) -> Iterator[str]:
    """The result as Markdown: both halves of the networks, then the half that was not looked at by what differs."""
    yield f"{len(found)} published steps, eager and compiled; no two alike in network, GPU and torch, in no fit."
    seen = [pair for pair in found if pair.looked_at]
    apart = [pair for pair in found if not pair.looked_at]
    yield from PAIRS.table("Networks", {"looked at": seen, "not looked at": apart})
    yield from PAIRS.table_by("GPU (not looked at)", apart, lambda pair: pair.gpu)
    yield from PAIRS.table_by("Mode (not looked at)", apart, lambda pair: pair.mode)
    yield from PAIRS.table_by("Torch (not looked at)", apart, lambda pair: pair.torch)
    yield from PAIRS.table_by("Family (not looked at)", apart, lambda pair: pair.family)


def _figures(group: Sequence[SpeedUp]) -> Iterator[str]:
    published = np.array([pair.published for pair in group])
    predicted = np.array([pair.predicted for pair in group])
    ratio = predicted / published
    compiled = np.array([pair.predicted_compiled / pair.compiled for pair in group])
    yield f"{np.median(published):.2f}x"
    yield f"{np.median(predicted):.2f}x"
    yield f"{np.median(ratio):.2f}"
    yield f"{np.quantile(ratio, 0.05):.2f}–{np.quantile(ratio, 0.95):.2f}"
    yield f"{np.mean(np.abs(np.log(ratio)) <= math.log(RIGHT)):.0%}"
    yield f"{np.median(np.abs(compiled - 1.0)):.1%}"
    yield f"{np.mean([pair.low <= pair.compiled <= pair.high for pair in group]):.0%}"


PAIRS = Comparison(
    "pairs",
    (
        "published speed-up",
        "predicted",
        "predicted / published: median",
        "5–95 %",
        f"within {RIGHT}x",
        "compiled step: median error",
        "in interval",
    ),
    _figures,
)
