"""What an op takes on several cores, by what one core takes.

torch and its libraries cut an op into pieces, and a core's share of an op is an op of its own, a smaller one: with
less arithmetic, and with operands that fit a nearer cache. So one core's prices say what the share takes. Starting a
parallel region adds some microseconds. The cores share clocks, memory channels and, where threads are two of a core,
arithmetic. How a shape is cut, and what a share of it is, stands in ``shapes``; which ops one core runs, in the table.
"""

from __future__ import annotations

import math
from dataclasses import replace

from placer.pricing.shapes import ONE_PIECE, Cut
from placer.pricing.work import Work
from placer.profile import Cores

#: Standard deviation of log(seconds) of an op whose share of a core was measured, on another machine: ops of one kind
#: scatter by it (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz, and torch's operator benchmark on
#: 16 and 24 cores).
SHARED_SIGMA = 0.4


def cut_of(work: Work) -> Cut:
    """How torch cuts an op."""
    return work.shape.cut(work) if work.row.shared else ONE_PIECE


def share_of(work: Work, cores: float) -> Work:
    """What one of so many cores does of an op."""
    if cores <= 1.0:
        return work
    shape, effort = work.shape.share(cores), work.effort
    if effort is not None:
        effort = effort._replace(cycles=effort.cycles / cores, bytes=effort.bytes / cores, flops=effort.flops / cores)
    return replace(
        work,
        flops=work.flops / cores,
        bytes=shape.share_bytes(work.bytes, cores),
        shape=shape,
        place=work.place._replace(footprint=work.place.footprint / cores),
        effort=effort,
    )


def shared_seconds(work: Work, cut_: Cut, share: float, start: float, cores: Cores, threads: int) -> float:
    """Seconds of an op, a core's ``share`` of which takes so many, ``start`` of them to start it."""
    at_work = min(threads, cut_.pieces)
    around = threads_made(cut_, threads) * cores.thread_seconds
    if at_work > 1.0 or cut_.always:
        around += cut_.regions * cores.region_seconds
    if at_work <= 1.0:
        return share + around
    start = min(start, share)
    slower = math.pow(at_work, 1.0 - cores.exponent(threads))
    of_a_core = (share - start) * slower
    if work.place.footprint > cores.cache_bytes:
        of_a_core = max(of_a_core, work.bytes / cores.bytes_per_second)
    serial = cut_.serial * (share - start)
    return start + around + of_a_core + serial * (at_work - 1.0)


def threads_made(cut_: Cut, threads: int) -> float:
    """Threads that end and are made anew, as regions of an op ask for smaller teams than the regions around them.

    GNU's OpenMP ends the threads that a region does not ask for, and makes them anew for the next that does. torch's
    own loops never ask for fewer (ATen/ParallelOpenMP.h, pytorch#32008); oneDNN's primitives ask
    for one thread a piece. A team of one runs within the thread that starts it, and ends none.
    """
    return sum(threads - team for team in cut_.teams if 1.0 < team < threads)
