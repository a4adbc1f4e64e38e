"""What a library's loader takes for a batch, measured where the library uses it: between steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from placer.workload import Loading, same_order


def loading_between(
    loader: Any,
    step: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.thread_time,
    limit_seconds: float = 0.5,
) -> Loading:
    """Measure ``loader`` with ``step`` of each batch in between, whose own time does not count.

    Alone, a loader finds its code and data in the caches, which a step replaces. A loader with workers is measured
    alone, as they do not wait for steps. The thread's time leaves out other programs on the machine; give another
    ``clock`` for data that is waited for. It ends after about ``limit_seconds``, or after a step that takes longer.

    Raises:
        ValueError: a loader without batches.
    """
    if getattr(loader, "num_workers", 0):
        return Loading.of(loader, limit_seconds=limit_seconds)
    away = 0.0

    def batches() -> Iterator[Any]:
        nonlocal away
        began = time.perf_counter()
        for batch in loader:
            yield batch
            start = clock()
            step(batch)
            away += clock() - start
            if time.perf_counter() - began > limit_seconds:
                return

    with same_order(loader):
        return Loading.of(_Epoch(batches), clock=lambda: clock() - away)


class _Epoch:
    """What begins anew each time it is iterated."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
