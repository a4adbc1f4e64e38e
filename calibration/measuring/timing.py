"""Times single functions robustly: what the rates of a device are made of.

A block of calls is timed at once, long enough that neither the clock's tick nor the wait for the device shows in it.
Blocks repeat until their median is known. Median and inter-quartile range are used throughout: on a shared machine one
block in twenty is ten times too long, which would distort a mean.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Sequence

from placer.errors import TimerError

Clock = Callable[[], float]

#: A timed block lasts at least this many clock ticks, so that a tick is at most 1 % of it.
TICKS_PER_BLOCK = 100
#: Reads without a change after which a clock is called dead: 0.1 s or more, several ticks of the coarsest clock in use.
_DEAD_AFTER_READS = 2_000_000
#: Calls that must fill a block: where 16 million do not, the clock is too slow, not the function too fast.
_MAX_LOOPS = 1 << 24
#: Blocks at least and at most, and the relative standard error of their median that is small enough.
LEAST_BLOCKS, MOST_BLOCKS, SMALL_ERROR = 5, 1000, 0.01
#: Inter-quartile range over the median above which timings say nothing: a contended machine stays below 2.
NEVER_SETTLES = 10.0

#: Bytes of a block that glibc maps, just below the largest that its heap will take. Once one is freed, glibc maps no
#: block of up to this size: else the same op costs more before than after.
LARGE_BLOCK = (32 << 20) - (64 << 10)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of an ascending, non-empty sequence lies, linearly interpolated."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def clock_resolution(clock: Clock = time.perf_counter, *, ticks: int = 5) -> float:
    """Smallest step the clock was seen to make, in seconds; ``TimerError`` if it stands still or runs backwards."""
    steps = []
    last = clock()
    for _ in range(ticks):
        for _ in range(_DEAD_AFTER_READS):
            now = clock()
            if now != last:
                break
        if now == last:
            raise TimerError(f"the clock stands still: {_DEAD_AFTER_READS} reads all gave {last!r}")
        steps.append(_elapsed(last, now))
        last = now
    return min(steps)


def _elapsed(start: float, end: float) -> float:
    if not 0 <= end - start < math.inf:
        raise TimerError(f"the clock went from {start!r} to {end!r}: a clock that only moves forward is needed")
    return end - start


def measure(
    fn: Callable[[], object], *, seconds: float, synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> list[float]:  # fmt: skip
    """Seconds per call of ``fn`` in blocks of calls, ascending. Its first call is not timed.

    ``synchronize`` waits for the device; it is called before every block and, inside the block's time, after it. A
    block repeats ``fn`` until it lasts 100 times what the clock (and an idle ``synchronize``) can resolve. Blocks
    repeat until the standard error of their median is small, or ``seconds`` are spent; one is always timed.

    Raises ``TimerError`` for a clock that cannot time, or whose timings never settle.
    """
    started = clock()
    fn()
    visible = clock_resolution(clock)
    if synchronize is not None:
        visible = max(visible, min(block_seconds(lambda: None, 1, synchronize, clock) for _ in range(3)))
    loops = 1
    blocks: list[float] = []
    while True:
        elapsed = block_seconds(fn, loops, synchronize, clock)
        if elapsed < TICKS_PER_BLOCK * visible:
            if elapsed == 0:
                clock_resolution(clock, ticks=1)  # it may have stopped
            if loops >= _MAX_LOOPS:
                raise TimerError(f"{loops} calls took {elapsed!r} s by the clock: too little to be measured")
            # Blocks of another length must not mix with these: a short one carries more of the clock's own cost.
            loops *= 2
            blocks.clear()
            continue
        insort(blocks, elapsed / loops)
        spread = (percentile(blocks, 0.75) - percentile(blocks, 0.25)) / percentile(blocks, 0.5)
        # For normal noise the standard error of the median is 0.93 of this, so it errs on the safe side.
        known = len(blocks) >= LEAST_BLOCKS and spread / math.sqrt(len(blocks)) <= SMALL_ERROR
        if known or len(blocks) >= MOST_BLOCKS or clock() - started >= seconds:
            break
    if len(blocks) >= LEAST_BLOCKS and not spread <= NEVER_SETTLES:
        raise TimerError(
            f"timings never settle: {len(blocks)} blocks spread by {spread:.0%} (above {NEVER_SETTLES:.0%}); "
            "stop other programs and run placer calibrate again"
        )
    return blocks


def run_for(fn: Callable[[], object], seconds: float, most: int, clock: Clock) -> None:
    """Run ``fn`` for ``seconds``, at least once and at most ``most`` times."""
    start = clock()
    for _ in range(most):
        fn()
        if clock() - start >= seconds:
            break


def block_seconds(
    fn: Callable[[], object], calls: int, synchronize: Callable[[], object] | None, clock: Clock
) -> float:
    """Seconds until ``calls`` calls are done, the device idle before. Raises ``TimerError`` for a clock that leaps."""
    if synchronize is not None:
        synchronize()
    start = clock()
    for _ in range(calls):
        fn()
    if synchronize is not None:
        synchronize()
    return _elapsed(start, clock())
