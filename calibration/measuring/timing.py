"""One robust timer for everything that is measured: ops, copies and whole steps, on any device.

A block of calls is timed at once, long enough that neither the clock's tick nor the wait for the device shows in it.
Blocks repeat until their median is known. Median and inter-quartile range are used throughout: on a shared machine one
block in twenty is ten times too long, which would distort a mean.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placer.errors import TimerError

Clock = Callable[[], float]

#: A timed block lasts at least this many clock ticks, so that a tick is at most 1 % of it.
TICKS_PER_BLOCK = 100
#: Reads without a change after which a clock is called dead: 0.1 s or more, several ticks of the coarsest clock in use.
_DEAD_AFTER_READS = 2_000_000
#: Calls that must fill a block: where 16 million do not, the clock is too slow, not the function too fast.
_MAX_LOOPS = 1 << 24
#: Inter-quartile range over the median above which timings say nothing: a contended machine stays below 2.
NEVER_SETTLES = 10.0


@dataclass(frozen=True)
class Timing:
    """What repeated blocks of calls took, in seconds per call.

    ``spread`` is the inter-quartile range of the blocks over their median; ``count`` the number of blocks and ``loops``
    the calls in each. ``host_seconds`` is the median time until a call was issued, before the device was waited for
    (0.0 without a device). ``stable`` is False when time ran out before the median was known as well as asked.
    """

    median: float
    p10: float
    p90: float
    spread: float
    count: int
    stable: bool
    loops: int = 1
    host_seconds: float = 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of an ascending, non-empty sequence lies, linearly interpolated."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def relative_spread(ordered: Sequence[float]) -> float:
    """Inter-quartile range over the median of an ascending, non-empty sequence."""
    return (percentile(ordered, 0.75) - percentile(ordered, 0.25)) / percentile(ordered, 0.5)


def clock_resolution(clock: Clock = time.perf_counter, *, ticks: int = 5) -> float:
    """Smallest step the clock was seen to make, in seconds; ``TimerError`` if it stands still or runs backwards."""
    steps = []
    last = clock()
    for _ in range(ticks):
        for _ in range(_DEAD_AFTER_READS):
            now = clock()
            if now != last:
                break
        step = now - last
        if step == 0:
            raise TimerError(f"the clock stands still: {_DEAD_AFTER_READS} reads all gave {last!r}")
        if not 0 < step < math.inf:
            raise TimerError(f"the clock went from {last!r} to {now!r}: a clock that only moves forward is needed")
        steps.append(step)
        last = now
    return min(steps)


def measure(
    fn: Callable[[], object],
    *,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
    min_rounds: int = 5,
    max_rounds: int = 1000,
    max_seconds: float = 1.0,
    target_spread: float = 0.01,
    warmup: int = 1,
) -> Timing:
    """Time ``fn()``, seconds per call.

    ``synchronize`` waits for the device; it is called before every block and, inside the block's time, after it. A
    block repeats ``fn`` until it lasts 100 times what the clock (and an idle ``synchronize``) can resolve. Blocks
    repeat until the standard error of the median, about ``spread / sqrt(count)``, is at most ``target_spread`` after
    at least ``min_rounds`` blocks; or until ``max_rounds`` blocks or ``max_seconds`` seconds are spent (one block is
    always timed).

    Raises ``ValueError`` for arguments out of range and ``TimerError`` for a clock that cannot time, or whose timings
    never settle.
    """
    if min_rounds < 2 or max_rounds < min_rounds:
        raise ValueError(f"2 <= min_rounds <= max_rounds is needed, got {min_rounds} and {max_rounds}")
    if not max_seconds > 0 or not target_spread > 0:
        raise ValueError(f"max_seconds and target_spread are above 0, got {max_seconds} and {target_spread}")
    started = clock()
    for _ in range(warmup):
        fn()
    wanted = TICKS_PER_BLOCK * _visible(clock, synchronize)
    loops = 1
    blocks: list[float] = []
    issues: list[float] = []
    while True:
        elapsed, issued = _block(fn, loops, synchronize, clock)
        if elapsed < wanted:
            # Blocks of another length must not mix with these: a short one carries more of the clock's own cost.
            loops = _more_loops(loops, elapsed, clock)
            blocks.clear()
            issues.clear()
            continue
        insort(blocks, elapsed / loops)
        insort(issues, issued / loops)
        enough = len(blocks) >= min_rounds and _median_error(blocks) <= target_spread
        if enough or len(blocks) >= max_rounds or clock() - started >= max_seconds:
            break
    spread = relative_spread(blocks)
    if len(blocks) >= min_rounds and not spread <= NEVER_SETTLES:
        raise TimerError(
            f"timings never settle: {len(blocks)} blocks spread by {spread:.0%} (above {NEVER_SETTLES:.0%}); "
            "stop other programs and run placer calibrate again"
        )
    return Timing(
        median=percentile(blocks, 0.5),
        p10=percentile(blocks, 0.1),
        p90=percentile(blocks, 0.9),
        spread=spread,
        count=len(blocks),
        stable=enough,
        loops=loops,
        host_seconds=percentile(issues, 0.5) if synchronize is not None else 0.0,
    )


def _visible(clock: Clock, synchronize: Callable[[], object] | None) -> float:
    """Seconds below which a block shows the clock's tick, or the wait for an idle device, rather than the work."""
    resolution = clock_resolution(clock)
    if synchronize is None:
        return resolution
    synchronize()
    waits = []
    for _ in range(3):
        start = clock()
        synchronize()
        waits.append(clock() - start)
    return max(resolution, min(waits))


def _block(
    fn: Callable[[], object], loops: int, synchronize: Callable[[], object] | None, clock: Clock
) -> tuple[float, float]:
    """(seconds until all is done, seconds until all is issued) of ``loops`` calls."""
    if synchronize is not None:
        synchronize()
    start = clock()
    for _ in range(loops):
        fn()
    issued = done = clock()
    if synchronize is not None:
        synchronize()
        done = clock()
    if not 0 <= done - start < math.inf:
        raise TimerError(f"the clock went from {start!r} to {done!r}: a clock that only moves forward is needed")
    return done - start, issued - start


def _more_loops(loops: int, elapsed: float, clock: Clock) -> int:
    """Twice the loops; ``TimerError`` when the clock is to blame for the short block."""
    if elapsed == 0:
        clock_resolution(clock, ticks=1)
    if loops >= _MAX_LOOPS:
        raise TimerError(f"{loops} calls took {elapsed!r} s by the clock: too little to be measured")
    return loops * 2


def _median_error(ordered: Sequence[float]) -> float:
    """Relative standard error of the median; for normal noise 0.93 of this, so it errs on the safe side."""
    return relative_spread(ordered) / math.sqrt(len(ordered))
