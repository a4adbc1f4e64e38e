"""What is measured next: every family first, then where time teaches most; and what has room."""

from __future__ import annotations

import math

from priced import elementwise

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.calibration.plan import Planner

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}
#: Two probes of each family are drawn before more of any.
ALL_TWICE = 2 * len(PROPOSERS)


def observation(family: str, factor: float = 1.0) -> StepObservation:
    added = elementwise("aten::add", 1e3, 12e3)
    op = OpObservation(added.family, added.op, added.dtype, added.features, 2e-6 * factor, 0.0, 0.0, 1)
    return StepObservation("cpu", 1, family, "x", 1e-3, 0.0, {}, (op,))


def drawn(probes: int, factors: tuple[float, ...] = (1.0,), failing: str = "") -> dict[str, int]:
    """Probes by family after so many, where elementwise residuals vary by ``factors``, and one family fails."""
    planner, counts = Planner(RATES, seed=0, seconds=60.0), dict.fromkeys(PROPOSERS, 0)
    for number in range(probes):
        family = planner.next().family
        counts[family] += 1
        factor = factors[number % len(factors)] if family == "elementwise" else 1.0
        planner.learn(family, None if family == failing else observation(family, factor), 0.01)
    return counts


def test_time_goes_where_it_teaches_most_and_not_to_what_fails() -> None:
    assert drawn(ALL_TWICE) == dict.fromkeys(PROPOSERS, 2)
    usual = drawn(100)
    assert usual["network"] > usual["pooling"] >= 2
    assert drawn(100, (math.exp(-3), math.exp(3)))["elementwise"] > usual["elementwise"]
    assert drawn(100, failing="recurrent")["recurrent"] < 25
