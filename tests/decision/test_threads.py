from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.decision.threads import TIE, best_count, options, reason
from placer.pricing.prediction import Prediction


def test_the_shortest_step_wins() -> None:
    assert best_count({1: 2.0, 2: 1.0, 4: 1.5}, now=4) == 2
    assert best_count({1: 1.0, 2: 1.0}, now=8) == 1
    with pytest.raises(ValueError, match="at least one"):
        best_count({}, now=1)


def test_the_present_count_is_kept_in_a_tie() -> None:
    assert best_count({1: 1.0 - 0.9 * TIE, 2: 1.0}, now=2) == 2
    assert best_count({1: 1.0 - 1.1 * TIE, 2: 1.0}, now=2) == 1


@pytest.mark.parametrize(("steps", "now", "chosen", "said"), [
    ({1: 1e-3, 2: 2e-3}, 2, 1, ", with 1 thread: with 2 a step would take 2.00 ms"),
    ({1: 2e-3, 2: 1e-3, 4: 3e-3}, 2, 2, ", with 2 threads: the best of 1, 2 and 4"),
    ({1: 0.99e-3, 2: 1e-3}, 2, 2, ", with 2 threads as now: no other number is much faster"),
    ({2: 1e-3}, 2, 2, ""),
])  # fmt: skip
def test_the_reason(
    make_prediction: Callable[..., Prediction], steps: dict[int, float], now: int, chosen: int, said: str
) -> None:
    tried = options({count: make_prediction("cpu", seconds) for count, seconds in steps.items()}, now)
    assert [option.threads for option in tried] == sorted(steps)
    assert best_count(steps, now) == chosen
    assert reason(chosen, tried) == said
