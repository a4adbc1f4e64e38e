"""The time of a step's ops, each alone in a hot loop, added up: what most cost models are built from, as a baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring.timing import Clock

#: Times an op is run in a row, of which the fastest counts.
REPEATS = 4


class _EachOpHot(TorchDispatchMode):
    """Runs every op several times in a row, with its real operands, and adds up the fastest times.

    An op that writes into its operands is run once: a second time it would do other work.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds: float = 0.0
        self._clock = clock

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # hiding the class from the compiler imports it, for seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        times = []
        for _ in range(1 if func._schema.is_mutable else REPEATS):
            start = self._clock()
            result = func(*args, **(kwargs or {}))
            times.append(self._clock() - start)
        self.seconds += min(times)
        return result


def isolated_seconds(step: Callable[[], object], *, clock: Clock = time.perf_counter) -> float:
    """Seconds the ops of one (warm) ``step`` take on the CPU, each timed alone and hot; takes a few steps' time.

    Nothing between the ops is counted, and no op finds its operands cold: the sum is what composition adds too little.
    """
    mode = _EachOpHot(clock)
    with mode:
        step()
    return mode.seconds
