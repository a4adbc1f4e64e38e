"""Times functions and steps robustly, on the CPU and on devices that have to be waited for.

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
from itertools import repeat
from typing import NamedTuple

from placer.errors import TimerError

Clock = Callable[[], float]
#: Seconds of ``forward`` (with the loss), ``backward`` and ``update``, which begins with clearing the old gradients.
Phases = dict[str, float]

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


def spread_of(ordered: Sequence[float]) -> float:
    """The inter-quartile range over the median of an ascending, non-empty sequence; 0.0 where the median is 0."""
    median = percentile(ordered, 0.5)
    return (percentile(ordered, 0.75) - percentile(ordered, 0.25)) / median if median > 0.0 else 0.0


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


class Ends(NamedTuple):
    """The clock once the old gradients were cleared, and at the ends of forward and backward (seconds).

    A training step that returns these is timed phase by phase.
    """

    cleared: float
    forward: float
    backward: float


class Timed(NamedTuple):
    """The seconds of one or more calls, and the phases of a single one where it told them."""

    seconds: float
    phases: Phases | None = None


@dataclass(frozen=True)
class Timer:
    """Times calls of ``run``. ``synchronize`` waits for the device that it uses; None on the CPU."""

    run: Callable[[], object]
    synchronize: Callable[[], object] | None = None
    clock: Clock = time.perf_counter

    def wait(self) -> None:
        """Wait for the device, as has to be done after calls that were not timed."""
        if self.synchronize is not None:
            self.synchronize()

    def time(self, calls: int = 1) -> Timed:
        """Time so many calls, from a device that is idle to one that is again; ``TimerError`` for a clock that leaps.

        A host that runs ahead of its device leaves a phase long before the device does: phases are those of the CPU.
        """
        run, ends = self.run, None
        each = repeat(None, calls)  # made before the clock is read: a step may take five microseconds
        start = self.clock()
        for _ in each:
            ends = run()
        if self.synchronize is not None:
            self.synchronize()
        end = self.clock()
        phases = None
        if isinstance(ends, Ends) and calls == 1 and self.synchronize is None:
            forward, backward = ends.forward - ends.cleared, ends.backward - ends.forward
            phases = {"forward": forward, "backward": backward, "update": ends.cleared - start + end - ends.backward}
        return Timed(_elapsed(start, end), phases)

    def seconds(self, calls: int = 1) -> float:
        """Seconds until so many calls are done."""
        return self.time(calls).seconds


def _nothing() -> None:
    """What an idle device is waited for after."""


def measure(
    fn: Callable[[], object],
    *,
    seconds: float,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """Seconds per call of ``fn`` in blocks of calls, ascending. Its first call is not timed.

    ``synchronize`` waits for the device; it is called before the first block and, inside its time, after each. A
    block repeats ``fn`` until it lasts 100 times what the clock (and an idle ``synchronize``) can resolve. Blocks
    repeat until the standard error of their median is small, or ``seconds`` are spent; one is always timed.

    Raises ``TimerError`` for a clock that cannot time, or whose timings never settle.
    """
    started = clock()
    fn()
    timer = Timer(fn, synchronize, clock)
    timer.wait()
    visible = clock_resolution(clock)
    if synchronize is not None:
        waiting = Timer(_nothing, synchronize, clock)
        visible = max(visible, min(waiting.seconds() for _ in range(3)))
    loops = 1
    blocks: list[float] = []
    while True:
        elapsed = timer.seconds(loops)
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
        spread = spread_of(blocks)
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
