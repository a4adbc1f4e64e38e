"""What an op takes on several cores, by what one core takes.

torch and its libraries cut an op into pieces, and a core's share of an op is an op of its own, a smaller one: with less
arithmetic, and with operands that fit a nearer cache. So one core's prices say what the share takes. Starting a parallel
region adds some microseconds. The cores share clocks, memory channels and, where threads are two of a core, arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from placer.pricing.describe import ops_inside
from placer.pricing.families.family import FINE_GRAIN, GRAIN, cut
from placer.pricing.families.loops import pieces_of_elementwise, pieces_of_normalization, pieces_of_reduction
from placer.pricing.families.products import OPS_IN_TIME_STEP
from placer.pricing.op_table import COUNTED
from placer.pricing.work import Work
from placer.profile import Cores

#: FLOPs of a matrix product that is worth a thread to MKL, OpenBLAS and oneDNN.
PRODUCT_GRAIN = 2.0 * 40**3
#: Bytes of a number.
_ITEM = 4


class Cut(NamedTuple):
    """How an op is cut: into how many pieces at the most, in how many parallel regions one after the other."""

    pieces: float
    regions: float = 1.0


ONE_PIECE = Cut(1.0)


def cut_of(work: Work) -> Cut:
    """How torch cuts an op."""
    effort = work.effort
    by_table = effort is not None and effort.kind != COUNTED and effort.kind in _BY_KIND
    if by_table and work.family not in _BY_FAMILY:
        return _BY_KIND[effort.kind](work)  # type: ignore[union-attr]
    found = _BY_FAMILY.get(work.family)
    return found(work) if found else ONE_PIECE


def share_of(work: Work, cores: float) -> Work:
    """What one of so many cores does of an op."""
    if cores <= 1.0:
        return work
    own = len(work.sizes) - 4
    sizes, (footprint, *context) = _SHARES.get(work.family, _all_but)(work.sizes[:own], cores), work.sizes[own:]
    moved = work.bytes / cores
    if work.family == "matmul":
        moved = _ITEM * sum(sizes[4:7])
    effort = work.effort
    if effort is not None:
        effort = effort._replace(cycles=effort.cycles / cores, bytes=effort.bytes / cores, flops=effort.flops / cores)
    return replace(
        work, flops=work.flops / cores, bytes=moved, sizes=(*sizes, footprint / cores, *context), effort=effort
    )


def shared_seconds(work: Work, cut_: Cut, share: float, start: float, cores: Cores, threads: int) -> float:
    """Seconds of an op, a core's ``share`` of which takes so many, ``start`` of them to start it."""
    at_work = min(threads, cut_.pieces)
    if at_work <= 1.0:
        return share
    start = min(start, share)
    slower = at_work ** (1.0 - cores.exponent(threads))
    own = (share - start) * slower
    if work.sizes[-4] > cores.cache_bytes:
        own = max(own, work.bytes / cores.bytes_per_second)
    return start + cut_.regions * cores.region_seconds + own


def _elementwise(work: Work) -> Cut:
    return Cut(pieces_of_elementwise(work))


def _rows(work: Work) -> Cut:
    """Rows are never split."""
    numel, row = work.sizes[:2]
    return Cut(min(cut(numel), max(numel / max(row, 1.0), 1.0)))


def _softmax(work: Work) -> Cut:
    numel, row = work.sizes[:2]
    return Cut(cut(numel, FINE_GRAIN))


def _normalization(work: Work) -> Cut:
    regions = 3.0 if "batch_norm" in work.op else 1.0
    return Cut(pieces_of_normalization(work), regions)


def _pooling(work: Work) -> Cut:
    return Cut(cut(work.sizes[0], FINE_GRAIN))


def _matmul(work: Work) -> Cut:
    return Cut(max(work.flops / PRODUCT_GRAIN, 1.0))


def _convolution(work: Work) -> Cut:
    batch, _, cout, groups, _, positions = work.sizes[:6]
    most = batch * max(cout * groups / 16.0, 1.0) * max(math.sqrt(positions), 1.0)
    return Cut(max(min(most, work.flops / PRODUCT_GRAIN), 1.0), 3.0 if "backward" in work.family else 2.0)


def _attention(work: Work) -> Cut:
    return Cut(max(work.flops / PRODUCT_GRAIN, 1.0))


def _recurrent(work: Work) -> Cut:
    length, batch, _, hidden, stacked = work.sizes[:5]
    steps = max(length * stacked, 1.0)
    return Cut(max(work.flops / steps / PRODUCT_GRAIN, 1.0), steps)


def _linear_algebra(work: Work) -> Cut:
    return Cut(max(math.sqrt(work.flops / PRODUCT_GRAIN), 1.0), 1.0)


def _indexing(work: Work) -> Cut:
    return Cut(cut(work.sizes[0]))


def _optimizer(work: Work) -> Cut:
    return Cut(cut(work.sizes[0]), ops_inside(work) * 0.75)


def _by_grain(work: Work) -> Cut:
    return Cut(cut(work.bytes / (2.0 * _ITEM)))


_BY_FAMILY: Mapping[str, Callable[[Work], Cut]] = {
    "elementwise": _elementwise, "softmax": _softmax, "sorting": _rows, "normalization": _normalization,
    "pooling": _pooling, "matmul": _matmul, "convolution": _convolution, "convolution_backward": _convolution,
    "attention": _attention, "encoder": _attention, "recurrent": _recurrent, "linear_algebra": _linear_algebra,
    "fourier": _by_grain, "indexing": _indexing, "optimizer": _optimizer, "reduction": lambda w: Cut(pieces_of_reduction(w)),
}  # fmt: skip
_BY_KIND: Mapping[str, Callable[[Work], Cut]] = {
    kind: _by_grain for kind in ("numbers", "functions", "special", "copies", "interpolation", "sampling", "unfolding", "pads", "shuffles")
}


def _all_but(sizes: tuple[float, ...], _cores: float) -> tuple[float, ...]:
    return sizes


def _first_two(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Elements and bytes, or elements of both sides."""
    return (sizes[0] / cores, max(sizes[1] / cores, 1.0), *sizes[2:])


def _first(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    return (sizes[0] / cores, *sizes[1:])


def _loops(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    numel, moved, inner, block = sizes
    numel /= cores
    return numel, moved / cores, min(inner, numel), min(block, numel)


def _tiles(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of a product: matrices of the batch first, then tiles as square as can be."""
    batch, m, n, k = sizes[:4]
    several = min(batch, cores)
    batch, cores = batch / several, cores / several
    area = m * n / cores
    m_ = min(m, max(math.sqrt(area), 1.0))
    n_ = min(n, max(area / m_, 1.0))
    m_ = min(m, area / n_) if n_ > 0 else m_
    return (batch, m_, n_, k, batch * m_ * k, batch * k * n_, batch * m_ * n_, min(m_, n_, k))


def _images(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of a convolution: images of the batch first, then positions."""
    batch, cin, cout, groups, kernel, positions, inputs, weights, result = sizes
    several = min(batch, cores)
    batch, cores = batch / several, cores / several
    return batch, cin, cout, groups, kernel, positions / cores, inputs / cores, weights, result / cores / several


def _sequences(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of attention: sequences x heads first, then queries."""
    batch, length, *rest = sizes
    several = min(batch, cores)
    return (batch / several, length / (cores / several), *rest)


def _states(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of recurrent layers: rows of every step's product, or columns of its weights."""
    length, batch, width, hidden, stacked, state, weights = sizes
    return length, max(batch / cores, 1.0), width, hidden, stacked, state / cores, weights


_SHARES: Mapping[str, Callable[[tuple[float, ...], float], tuple[float, ...]]] = {
    "elementwise": _loops, "random": _loops, "softmax": _first, "sorting": _first, "normalization": _first,
    "pooling": _first_two, "reduction": _first_two, "matmul": _tiles, "convolution": _images,
    "convolution_backward": _images, "attention": _sequences, "encoder": _first, "recurrent": _states,
    "fourier": _first, "indexing": lambda s, p: (s[0] / p, s[1], s[2] / p, s[3]), "optimizer": _first,
    "other": _first_two, "linear_algebra": _all_but,
}  # fmt: skip
