"""What an op takes on several cores, by what one core takes.

torch and its libraries cut an op into pieces, and a core's share of an op is an op of its own, a smaller one: with
less arithmetic, and with operands that fit a nearer cache. So one core's prices say what the share takes. Starting a
parallel region adds some microseconds. The cores share clocks, memory channels and, where threads are two of a core,
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from placer.pricing.describe import ops_inside
from placer.pricing.families.family import FINE_GRAIN, REGISTER, aten, cut, padded
from placer.pricing.families.loops import pieces_of_elementwise, pieces_of_normalization, pieces_of_reduction
from placer.pricing.work import Work
from placer.profile import Cores

#: Standard deviation of log(seconds) of an op whose share of a core was measured, on another machine: ops of one kind
#: scatter by it (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz, and torch's operator benchmark on
#: 16 and 24 cores).
SHARED_SIGMA = 0.4
#: FLOPs of a matrix product that is worth a thread to MKL, OpenBLAS and oneDNN.
PRODUCT_GRAIN = 2.0 * 40**3
#: Regions of a product: on 16 threads squares of 128 and 256 take 10 and 21 us more than their share of a core's time,
#: 32 rows times 256 x 256 23 us (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz).
PRODUCT_REGIONS = 3.0
#: Cores that GRU and plain recurrent layers gain from, which torch runs op by op, without oneDNN: 64 steps of 32 rows
#: take 11.6 ms on one thread, 7.7 on two and 6.2 on 16 (same record).
STEP_BY_STEP = 2.0
#: Share of attention with dropout that draws random numbers: 24.8 and 9.5 ms of two such ops on 16 threads
#: (calibration.journal.xz of the two records calibration/records/nvidia-h200*).
DRAWING = 0.4
#: Numbers of an images' gradient, read and written, below which oneDNN leaves it to a few threads, how many, and
#: positions from which on the gradient of weights is made by all: counted with 8 and 16 threads, of convolutions of 1
#: to 64 channels (``tests/pricing/test_many_cores.py`` counts some of them anew).
SMALL_GRADIENT, FEW_THREADS, MANY_POSITIONS = 1e4, 4.0, 400.0
#: Bytes of a number.
_ITEM = 4


class Cut(NamedTuple):
    """How an op is cut: into how many pieces at the most, in how many parallel regions one after the other.

    ``always``: the regions are started even where one core gets all there is. ``teams``: threads of each region that is
    run by a team of its own size, which may be smaller than that of all threads. ``serial``: share of the op that one
    core does.
    """

    pieces: float
    regions: float = 1.0
    always: bool = False
    teams: tuple[float, ...] = ()
    serial: float = 0.0


ONE_PIECE = Cut(1.0)


def cut_of(work: Work) -> Cut:
    """How torch cuts an op."""
    kind = "" if work.effort is None else work.effort.kind
    if kind in _SERIAL_KINDS or work.op.rstrip("_") in _SERIAL or _is_transposed_copy(work):
        return ONE_PIECE
    if kind == "searches":
        return Cut(cut(work.sizes[0], SEARCH_GRAIN))
    cut_by = _BY_FAMILY.get(work.family) or _BY_KIND.get(kind)
    return cut_by(work) if cut_by else ONE_PIECE


def share_of(work: Work, cores: float) -> Work:
    """What one of so many cores does of an op."""
    if cores <= 1.0:
        return work
    count = len(work.sizes) - 4
    sizes, (footprint, *context) = _SHARES.get(work.family, _all_but)(work.sizes[:count], cores), work.sizes[count:]
    moved = _MOVED[work.family](sizes) if work.family in _MOVED else work.bytes / cores
    effort = work.effort
    if effort is not None:
        effort = effort._replace(cycles=effort.cycles / cores, bytes=effort.bytes / cores, flops=effort.flops / cores)
    return replace(
        work, flops=work.flops / cores, bytes=moved, sizes=(*sizes, footprint / cores, *context), effort=effort
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
    if work.sizes[-4] > cores.cache_bytes:
        of_a_core = max(of_a_core, work.bytes / cores.bytes_per_second)
    if work.fresh >= cores.fresh_from:
        of_a_core = max(of_a_core, work.fresh / cores.fresh_bytes_per_second)
    serial = cut_.serial * (share - start)
    return start + around + of_a_core + serial * (at_work - 1.0)


def threads_made(cut_: Cut, threads: int) -> float:
    """Threads that end and are made anew, as regions of an op ask for smaller teams than the regions around them.

    GNU's OpenMP ends the threads that a region does not ask for, and makes them anew for the next that does. torch's
    own loops never ask for fewer (ATen/ParallelOpenMP.h, pytorch#32008); oneDNN's primitives ask
    for one thread a piece. A team of one runs within the thread that starts it, and ends none.
    """
    return sum(threads - team for team in cut_.teams if 1.0 < team < threads)


def _is_transposed_copy(work: Work) -> bool:
    """Whether one core copies a matrix block by block (``copy_same_type_transpose_`` in ATen/native/Copy.cpp).

    Only matrices are: what has more dimensions is not walked in two loops.
    """
    if work.op not in _COPIES or work.flags[0] <= 0.0:
        return False
    numel, _, _, block = work.sizes[:4]
    return numel >= _LEAST_TRANSPOSED and block >= numel


#: Copies, and elements from which on a transposed matrix is copied in blocks.
_COPIES, _LEAST_TRANSPOSED = aten("clone copy copy_"), 60 * 60
#: Reductions no piece of which is smaller than the grain (``compare_base_kernel`` in ATen/native/cpu).
_COMPARED = aten("max min argmax argmin")
#: Kinds of ops, and ops, that one core runs, whatever their family; LAPACK's take no less on 16 than on one
#: (calibration/records/nvidia-h200-16-core-second/cpu_single_ops.jsonl.xz).
_SERIAL_KINDS = frozenset(("draws", "multinomial", "unique", "reflections", "eigenvalues"))
_SERIAL = aten("nll_loss_forward nll_loss_backward randperm unbind_copy")
#: Queries of a piece of a search (ATen/native/Bucketization.cpp).
SEARCH_GRAIN = 200


def _elementwise(work: Work) -> Cut:
    return Cut(pieces_of_elementwise(work))


def _reduction(work: Work) -> Cut:
    pieces = pieces_of_reduction(work)
    return Cut(min(pieces, cut(work.sizes[0])) if work.op in _COMPARED else pieces)


def _rows(work: Work) -> Cut:
    """Rows are never split."""
    numel, row = work.sizes[:2]
    return Cut(min(cut(numel), max(numel / max(row, 1.0), 1.0)))


def _softmax(work: Work) -> Cut:
    numel, row = work.sizes[:2]
    return Cut(cut(numel, FINE_GRAIN), always=numel > row)


def _normalization(work: Work) -> Cut:
    pieces = pieces_of_normalization(work)
    if "batch_norm" in work.op:
        return Cut(pieces, 4.0, always=True)
    return Cut(pieces, 2.0 if "backward" in work.op else 1.0)


def _pooling(work: Work) -> Cut:
    return Cut(cut(work.sizes[0], FINE_GRAIN), always=True)


def _pieces_of_products(flops: float) -> float:
    """Pieces of products of so many FLOPs together."""
    return max(flops / PRODUCT_GRAIN, 1.0)


def _matmul(work: Work) -> Cut:
    """MKL packs the operands, multiplies, and meets in between."""
    return Cut(_pieces_of_products(work.flops), PRODUCT_REGIONS)


def _convolution(work: Work) -> Cut:
    """oneDNN lays image and weight out anew, multiplies, and lays out the result."""
    pieces = _pieces_of_products(work.flops)
    if work.family == "convolution":
        return Cut(pieces, 3.0, teams=_forward_team(work))
    return Cut(pieces, 5.0, teams=_backward_teams(work))


def _forward_team(work: Work) -> tuple[float, ...]:
    """The pieces of a convolution are rows of an image, for a register of channels each."""
    images, _, channels, groups, _, positions = work.sizes[:6]
    if groups > 1.0 or images < 2.0:
        return ()
    return (images * math.ceil(channels / REGISTER) * _rows_of(work, positions),)


def _backward_teams(work: Work) -> tuple[float, ...]:
    """The gradient of the images, where it is asked for, and that of the weights.

    That of small images is left to four threads. That of weights is cut by image and by register of channels that are
    read and written, or of groups.
    """
    images, read, channels, groups, _, positions, read_positions = work.sizes[:7]
    if groups > 1.0:
        return (images * math.ceil(groups / REGISTER),)
    if images < 2.0:
        return ()
    teams = []
    blocks = math.ceil(read / REGISTER)
    if work.flags[6]:
        wide = read * padded(read) + channels * padded(channels)
        small = images * read_positions * wide < SMALL_GRADIENT
        teams.append(FEW_THREADS if small else images * blocks * _rows_of(work, read_positions))
    if positions < MANY_POSITIONS:
        teams.append(images * blocks * math.ceil(channels / REGISTER))
    return tuple(teams)


def _rows_of(work: Work, positions: float) -> float:
    """Rows of an image that has so many positions."""
    return 1.0 if work.flags[0] else math.sqrt(positions)


def _attention(work: Work) -> Cut:
    """One core draws the random numbers of a dropout."""
    return Cut(_pieces_of_products(work.flops), serial=DRAWING if work.flags[2] else 0.0)


def _encoder(work: Work) -> Cut:
    return Cut(_pieces_of_products(work.flops))


def _recurrent(work: Work) -> Cut:
    length, _, _, _, stacked = work.sizes[:5]
    steps = max(length * stacked, 1.0)
    pieces = _pieces_of_products(work.flops / steps)
    if "lstm" in work.op:  # oneDNN's: every step of time is a region
        return Cut(pieces, steps, always=True)
    return Cut(min(pieces, STEP_BY_STEP), steps)


def _linear_algebra(work: Work) -> Cut:
    return Cut(max(math.sqrt(work.flops / PRODUCT_GRAIN), 1.0))


def _indexing(work: Work) -> Cut:
    """Rows that are added up are sorted by their numbers first, in several regions whatever their size."""
    if "embedding_bag" in work.op and work.effort is not None:
        return Cut(work.effort.starts, always=work.effort.starts > 1.0)
    adds = any(name in work.op for name in ("index_add", "scatter_add", "scatter_reduce"))
    sorts = adds and work.flags[2] > 0.0
    return Cut(cut(work.sizes[0]), 6.0 if sorts else 1.0, always=sorts)


def _optimizer(work: Work) -> Cut:
    return Cut(cut(work.sizes[0]), 0.75 * ops_inside(work))


def _by_grain(work: Work) -> Cut:
    return Cut(cut(work.bytes / (2.0 * _ITEM)))


_BY_FAMILY: Mapping[str, Callable[[Work], Cut]] = {
    "elementwise": _elementwise, "softmax": _softmax, "sorting": _rows, "normalization": _normalization,
    "pooling": _pooling, "matmul": _matmul, "convolution": _convolution, "convolution_backward": _convolution,
    "attention": _attention, "encoder": _encoder, "recurrent": _recurrent, "linear_algebra": _linear_algebra,
    "fourier": _by_grain, "indexing": _indexing, "optimizer": _optimizer,
    "reduction": _reduction,
}  # fmt: skip
#: The same of ops that no family here says it of, by their kind.
_BY_KIND: Mapping[str, Callable[[Work], Cut]] = dict.fromkeys(
    (
        "numbers",
        "functions",
        "special",
        "copies",
        "interpolation",
        "sampling",
        "unfolding",
        "pads",
        "shuffles",
        "histograms",
        "losses",
        "picking",
    ),
    _by_grain,
)


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
    """Of a convolution: images of the batch first, then channels and positions of the result like a product's tiles.

    Every core reads the weights of its channels, and the window of its positions.
    """
    batch, cin, cout, groups, kernel, positions, inputs, weights, result = sizes
    several = min(batch, cores)
    batch, cores = batch / several, cores / several
    channels = max(cout * groups, 1.0)
    wide = min(max(math.sqrt(cores * channels / max(positions, 1.0)), 1.0), cores, max(channels / REGISTER, 1.0))
    high = cores / wide
    groups_, cout_ = (groups / wide, cout) if groups >= wide else (groups, cout / wide)
    return (
        batch, cin, cout_, groups_, kernel, positions / high, inputs / high, weights / wide,
        result / several / cores,
    )  # fmt: skip


def _sequences(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of attention: sequences x heads first, then queries."""
    batch, length, *rest = sizes
    several = min(batch, cores)
    return (batch / several, length / (cores / several), *rest)


def _states(sizes: tuple[float, ...], cores: float) -> tuple[float, ...]:
    """Of recurrent layers: rows of every step's product, or columns of its weights."""
    length, batch, width, hidden, stacked, state, weights = sizes
    return length, max(batch / cores, 1.0), width, hidden, stacked, state / cores, weights


#: Bytes of a core's share, where cores read the same operands.
_MOVED: Mapping[str, Callable[[tuple[float, ...]], float]] = {
    "matmul": lambda sizes: _ITEM * sum(sizes[4:7]),
    "convolution": lambda s: _ITEM * (s[0] * s[1] * s[3] * s[6] + s[7] + s[8]),
    "convolution_backward": lambda s: _ITEM * (2.0 * s[0] * s[1] * s[3] * s[6] + 2.0 * s[7] + s[8]),
}  # fmt: skip
_SHARES: Mapping[str, Callable[[tuple[float, ...], float], tuple[float, ...]]] = {
    "elementwise": _loops, "random": _loops, "softmax": _first, "sorting": _first, "normalization": _first,
    "pooling": _first_two, "reduction": _first_two, "matmul": _tiles, "convolution": _images,
    "convolution_backward": _images, "attention": _sequences, "encoder": _first, "recurrent": _states,
    "fourier": _first, "indexing": lambda s, p: (s[0] / p, s[1], s[2] / p, s[3]), "optimizer": _first,
    "other": _first_two, "linear_algebra": _all_but,
}  # fmt: skip
