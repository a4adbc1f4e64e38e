"""What physics allow an op on a CPU, on one core and many: the longest of named bounds; what each takes of a step.

The bounds are those of the roofline: Williams, Waterman & Patterson, "Roofline: an insightful visual performance
model", CACM 52(4), 2009. ``networks`` has what ops take beyond them, ``gpu.physics`` the bounds of a GPU.

**On several cores** torch and its libraries cut an op into pieces, and a core's share of an op is an op of its own, a
smaller one: with less arithmetic, and with operands that fit a nearer cache. So one core's prices say what the share
takes. Starting a parallel region adds some microseconds. The cores share clocks, memory channels and, where threads are
two of a core, arithmetic. How a shape is cut, and what a share of it is, stands in ``shapes``; which ops one core runs,
in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from placer import machine
from placer.pricing.framework import framework_seconds
from placer.pricing.networks import Array, cpu_starts
from placer.pricing.ops import QUANTIZED
from placer.pricing.prediction import Bound, PricedTrace
from placer.pricing.shapes import FAMILIES, Switch
from placer.pricing.shapes.loops import Loop
from placer.pricing.shapes.moves import Index
from placer.pricing.shapes.products import Convolution, ConvolutionGradient
from placer.pricing.shapes.shape import GRAIN, ITEM, ONE_PIECE, Cut, Work, cut
from placer.pricing.timeline import FRESH
from placer.pricing.work import ACCUMULATE, inputs_of, known_labels
from placer.profile import Cores, Device

#: What float32 products run in on tensor cores, and the suffix of its rate (``flops/tf32``).
TF32 = "tf32"
_HALVES = ("bfloat16", "float16")
#: FLOP/s relative to float32 that are assumed of a dtype that was never measured.
UNMEASURED_RATE = {"float64": 0.5, "bfloat16": 1.0, "float16": 1.0, "complex64": 0.25, "complex128": 0.125}
#: Cycles of a core in which an op is started: so the seconds of a start tell how fast a core's cycles are.
STARTING = 2500.0
#: Bytes that a core reads and writes in a cycle where its own caches hold them.
CACHED = 24.0
#: Bytes that a core's own caches hold, roughly. More than that is not in them, whatever the exact size.
CORE_CACHE = 2 << 20
#: Rate of a fit that has the seconds of a cycle, where they are known otherwise; ``/kind``: of one kind of op.
CYCLE = "cycle_seconds"
#: Rate of float32 products where a unit of their own multiplies.
PRODUCT_RATE = "flops/product"
#: Seconds in which a core adds a number atomically: 5.0 ns on two threads of an EPYC of Zen 5, 6.3 of Zen 4, 3.9 on 16
#: threads of a Xeon (``index_put`` in the journals of calibration/records).
ATOMIC_ADD = 4.5e-9
#: Rates: bytes/s at which a result is written whose memory the system gives anew, page by page, and bytes from which on
#: it is. Where they are not known, glibc maps results of ``FRESH`` bytes each time, and n threads write n to this power
#: times as fast as one (40 to 154 MB on one thread and two of an EPYC of Zen 5; 10 GB/s on 14 threads of an i9-10940X,
#: TristanBilot/mlx-benchmark).
FRESH_RATE, FRESH_FROM = "fresh/bytes_per_second", "fresh/from_bytes"
_FRESH_BYTES_PER_SECOND, _FRESH_POWER = 2.25e9, 0.55
#: Seconds that a wrong guess costs a core that draws numbers. Drawn with 0.05, 0.1, 0.2 and 0.5 a number takes 3.7,
#: 4.4, 5.7 and 9.6 ns on an EPYC of Zen 5.
MISSED = 13e-9
#: Logarithms that the ratio of two bounds is cut at: beyond, the lesser one no longer shows.
_LEAST_RATIO, _MOST_RATIO = -8.0, 16.0


class Bounds(NamedTuple):
    """The least seconds of an op's start, of its arithmetic, and of its memory traffic."""

    start: float
    arithmetic: float
    memory: float

    @property
    def seconds(self) -> float:
        """Arithmetic and traffic overlap: the longer of them counts, after the start."""
        return self.start + max(self.arithmetic, self.memory)


def bounds(work: Work, fit: Device) -> Bounds:
    """What physics allow an op on the device of ``fit``.

    On a CPU products run at the peak that was measured of them. All else takes a cycle of a core for each FLOP,
    whatever the peak. Operands that the cores' own caches hold come from there.
    """
    rates = fit.rates
    if fit.device != "cpu":
        start = work.shape.launches(work) * rates["dispatch_seconds"]
        return Bounds(start, work.flops / peak(work, rates, cpu=False), work.bytes / rates["bytes_per_second"])
    start = work.shape.ops_inside * cpu_starts(work.family, known_labels(work)) * rates["dispatch_seconds"]
    multiplies = FAMILIES[work.family].multiplies
    computing = work.flops / (peak(work, rates) if multiplies else fit.threads / cycle_seconds(rates))
    return Bounds(start, computing, work.bytes / bytes_per_second(work, fit))


def fresh_seconds(work: Work, fit: Device) -> float:
    """The least seconds of an op of a CPU whose result is so large that no allocator keeps memory for it."""
    if work.fresh < fit.rates.get(FRESH_FROM, FRESH):
        return 0.0
    return work.fresh / (fit.rates.get(FRESH_RATE) or _FRESH_BYTES_PER_SECOND * fit.threads**_FRESH_POWER)


def missed_seconds(work: Work) -> float:
    """Seconds of the wrong guesses of a core that draws numbers, beyond the usual ones.

    One core draws them all, under the generator's lock, and branches on each
    (``bernoulli_distribution`` in ATen/core/DistributionsHelper.h).
    """
    return MISSED * work.misses


def atomic_seconds(work: Work, threads: int) -> float:
    """Seconds in which the cores of a CPU add numbers where an index says, each so that it loses no other's.

    From a grain of float32 numbers on, several threads add them by compare-and-swap
    (``cpu_atomic_add_float`` in ATen/native/cpu/IndexKernel.cpp). One thread, and other dtypes, add as they come.
    """
    shape = work.shape
    if threads < 2 or not isinstance(shape, Index) or work.suffix != ACCUMULATE or work.dtype != "float32":
        return 0.0
    return ATOMIC_ADD * shape.moved / min(threads, cut(shape.moved)) if shape.moved >= GRAIN else 0.0


def cycle_seconds(rates: Mapping[str, float]) -> float:
    """Seconds of a core's cycle: as it is known, or as starting an op tells it."""
    return rates.get(CYCLE) or rates["dispatch_seconds"] / STARTING


def bytes_per_second(work: Work, fit: Device) -> float:
    """How fast the cores read and write a step's operands: from their caches, where these hold them."""
    rate = fit.rates["bytes_per_second"]
    if work.place.footprint > CORE_CACHE * fit.threads:
        return rate
    return max(rate, fit.threads * CACHED / cycle_seconds(fit.rates))


def cpu_inputs(works: Sequence[Work], fit: Device) -> tuple[Array, Array]:
    """(seconds by physics of n ops of one family, n x d inputs of the family's network).

    The inputs are the features of an op, amounts on a log2 scale, then arithmetic and traffic over the start.
    """
    limits = np.array([bounds(work, fit) for work in works])
    compared = np.log(np.maximum(limits[:, 1:], 1e-10) / limits[:, :1])
    features = np.array([inputs_of(work) for work in works])
    x = np.hstack([features, np.clip(compared, _LEAST_RATIO, _MOST_RATIO)])
    return limits[:, 0] + limits[:, 1:].max(axis=1), x


def peak(work: Work, rates: Mapping[str, float], *, cpu: bool = True) -> float:
    """FLOP/s of what the op runs in, measured or assumed: its dtype on the CPU, ``arithmetic`` on an accelerator."""
    dtype = work.dtype if cpu else arithmetic(work)
    if cpu and PRODUCT_RATE in rates and dtype == "float32" and FAMILIES[work.family].multiplies:
        return rates[PRODUCT_RATE]
    return rates.get(f"flops/{dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(dtype, 1.0)


def arithmetic(work: Work) -> str:
    """The dtype whose peak rate bounds an op on an accelerator: its own, or another that its kernels compute in.

    Depthwise convolutions have no matrices to multiply: they take neither tensor cores nor TF32.
    """
    dtype = work.dtype.partition("+")[0]
    family = FAMILIES[work.family]
    multiplies = family.multiplies and "depthwise" not in work.shape.variant
    if dtype in _HALVES and not multiplies:
        return "float32"
    if dtype == "float32" and multiplies and family.switch is not None and allows_tf32(family.switch):
        return TF32
    return dtype


def allows_tf32(switch: Switch) -> bool:
    """Whether this process lets CUDA multiply float32 in TF32."""
    return dict(zip(("matmul", "conv", "rnn"), machine.tf32(), strict=True))[switch]


def has_physics(work: Work) -> bool:
    """Whether it is known what an op does, so that its price is no guess: by the table of ops, or by its family."""
    return work.effort.kind != QUANTIZED if work.effort is not None else FAMILIES[work.family].described


def table_seconds(work: Work, fit: Device) -> float:
    """What an op takes on a CPU by the table of ops: its start, then its cycles or its memory traffic.

    Its bounds alone where the table does not have it.
    """
    effort, rates = work.effort, fit.rates
    if effort is None:
        return bounds(work, fit).seconds
    cores = cores_of(work, fit.threads) if effort.shared else 1.0
    computing = effort.cycles * (rates.get(f"{CYCLE}/{effort.kind}") or cycle_seconds(rates)) / cores
    return rates["dispatch_seconds"] + max(computing, work.bytes / bytes_per_second(work, fit))


def cores_of(work: Work, threads: int) -> float:
    """Cores among which a loop over the op's operands is shared: no piece of it is smaller than torch's grain."""
    return float(min(max(threads, 1), cut(work.bytes / (2 * ITEM))))


def evaluates(work: Work) -> bool:
    """Whether an op evaluates a polynomial or a table for each element, which takes longer than fetching it."""
    return work.family == "elementwise" and isinstance(work.shape, Loop) and work.shape.evaluates(work.flops)


def start_share(work: Work, fit: Device) -> float:
    """Share of an op's time that does not depend on how much it does: what the thread that starts it does alone."""
    limits = bounds(work, fit)
    return limits.start / limits.seconds


#: What a step's op time is made of, in the order it is shown. The parts add up to the component ``compute``.
COMPUTE_PARTS = ("arithmetic", "memory", "overhead", "optimizer")


def op_parts(work: Work, seconds: float, fit: Device) -> Bounds:
    """Seconds of an op by what they go into: starting it, its arithmetic, its memory traffic.

    They are split like the bounds of these. Arithmetic and traffic overlap: only the longer of the two counts.
    """
    limits = bounds(work, fit)
    rest = seconds * (1.0 - limits.start / limits.seconds)
    computes = limits.arithmetic >= limits.memory
    return Bounds(seconds - rest, rest if computes else 0.0, 0.0 if computes else rest)


def compute_parts(priced: PricedTrace, fit: Device) -> dict[str, float]:
    """The seconds of a step's ops by ``COMPUTE_PARTS``: what they go into, the optimizer's apart."""
    rows = list(zip(priced.trace.calls, priced.works, priced.seconds, strict=True))
    by_limit = _by_limit(((work, seconds) for call, work, seconds in rows if call.phase != "optimizer"), fit)
    return {**by_limit, "optimizer": sum(seconds for call, _, seconds in rows if call.phase == "optimizer")}


def step_bounds(priced: PricedTrace, components: Mapping[str, float], fit: Device) -> dict[Bound, float]:
    """The seconds of a step by what bounds them; they add up to the step.

    An accelerator runs behind its host. Where the host needs longer to issue the ops than the device to run them,
    faster kernels would save nothing: all that is not copied or waited for is bounded by launches.
    """
    bound_seconds: dict[Bound, float] = {
        "launches": components.get("dispatch", 0.0),
        "transfer": components.get("copy", 0.0),
        "arithmetic": 0.0,
        "memory": 0.0,
        "waits": components.get("sync", 0.0) + components.get("others", 0.0),
        "loader": components.get("loading", 0.0),
    }
    device = sum(priced.seconds)
    host = sum(priced.host_seconds) + framework_seconds(priced.counts, fit.framework)
    if priced.device != "cpu" and host > device:
        bound_seconds["launches"] += device
        return bound_seconds
    limits = _by_limit(zip(priced.works, priced.seconds, strict=True), fit)
    bound_seconds["launches"] += limits["overhead"]
    bound_seconds["arithmetic"] += limits["arithmetic"]
    bound_seconds["memory"] += limits["memory"]
    return bound_seconds


def _by_limit(rows: Iterable[tuple[Work, float]], fit: Device) -> dict[str, float]:
    sums = {"overhead": 0.0, "arithmetic": 0.0, "memory": 0.0}
    parts: dict[int, Bounds] = {}
    for work, seconds in rows:
        if id(work) not in parts:
            parts[id(work)] = op_parts(work, 1.0, fit)
        for name, share in zip(sums, parts[id(work)], strict=True):
            sums[name] += seconds * share
    return sums


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


#: Rates of a CPU that unfolds: FLOP/s of products, bytes/s that all cores unfold, seconds of a core's cycle.
PRODUCTS, UNFOLDED, CORE_CYCLE = "unfolded/flops", "unfolded/bytes_per_second", "unfolded/cycle_seconds"
#: Bytes that a core unfolds in a cycle, 3.8 GB/s of an M1's: 279 MB take 8 to 43 ms on ten chips
#: (TristanBilot/mlx-benchmark).
BYTES_PER_CYCLE = 1.2
#: Images from which on NNPACK is asked, and the longest side of its kernels.
LEAST_IMAGES, LONGEST_SIDE = 16, 16
#: NNPACK: cycles of a number that is transformed, FLOPs of a cycle, cycles of a number of image and result. Fitted to
#: 63 published times on nine of Apple's chips, off by 17 % in the median, and by 23 % on 42 of others (same source).
TRANSFORMED, MULTIPLIED, LAID_OUT = 1.9, 27.0, 1.9
#: FLOPs of a number of a tile for each pair of channels: of complex ones, and of those of Winograd's real ones.
FOURIER, WINOGRAD = 4.0, 2.0
#: Channels of the result that a matrix unit holds: fewer take as long.
UNIT = 16.0
#: Ops that a group of channels is, of which torch makes a convolution each.
OPS_OF_GROUP = 8.0


def unfolded(work: Work, rates: Mapping[str, float]) -> Convolution | None:
    """The shape of a convolution, or of a gradient of one, on a CPU of which ``rates`` says that it unfolds."""
    return work.shape if PRODUCTS in rates and isinstance(work.shape, Convolution) else None


def unfolded_seconds(work: Work, rates: Mapping[str, float]) -> float:
    """Seconds of a convolution on all cores, or of its gradients."""
    shape = unfolded(work, rates)
    assert shape is not None
    groups, read = shape.groups, shape.batch * shape.groups * shape.in_channels
    start = rates["dispatch_seconds"] * max(OPS_OF_GROUP * groups, 1.0) if groups > 1.0 else rates["dispatch_seconds"]
    numbers = read * shape.input_positions + shape.batch * groups * shape.out_channels * shape.positions
    backward, side = isinstance(shape, ConvolutionGradient), _side(shape.kernel, shape)
    plain = not (shape.three_d or shape.transposed or shape.dilated or backward) and work.dtype == "float32"
    if plain and shape.variant == "depthwise" and side == 3.0:  # a kernel of its own, by Winograd
        return rates["dispatch_seconds"] + 4.0 * numbers / rates[UNFOLDED]
    if plain and shape.batch >= LEAST_IMAGES and side <= LONGEST_SIDE:
        return start + rates[CORE_CYCLE] * (groups * _tiled_cycles(shape) + LAID_OUT * numbers)
    as_they_are = shape.kernel == 1.0 and shape.positions == shape.input_positions
    windows = 0.0 if as_they_are else 4.0 * read * shape.kernel * shape.positions
    passes = 2.0 if isinstance(shape, ConvolutionGradient) and shape.to_input else 1.0
    padding = max(UNIT / shape.out_channels, 1.0)
    return start + passes * windows / rates[UNFOLDED] + padding * work.flops / rates[PRODUCTS]


def _tiled_cycles(shape: Convolution) -> float:
    """Cycles of NNPACK for one group of channels (``nnp_convolution_output`` in its src/convolution-output.c).

    Of convolutions that skip positions it multiplies each window as it is.
    """
    images, read, written = shape.batch, shape.in_channels, shape.out_channels
    if shape.input_positions >= 2.0 * shape.positions:
        return 2.0 * images * read * written * shape.kernel * shape.positions / MULTIPLIED
    side = _side(shape.kernel, shape)

    def tiles(length: float) -> float:
        """Tiles of so many numbers a side, of an image."""
        across = math.ceil(_side(shape.positions, shape) / (length - side + 1.0))
        return across if shape.one_d else across * across

    length = 8.0 if side <= 8.0 and tiles(8.0) <= 4.0 * tiles(16.0) else 16.0
    winograd = length == 8.0 and side == 3.0 and not shape.one_d
    number = length * length
    transformed = number * (images * tiles(length) * (read + written) + read * written)
    multiplied = (WINOGRAD if winograd else FOURIER) * number * images * tiles(length) * read * written
    return TRANSFORMED * transformed + multiplied / MULTIPLIED


def _side(size: float, shape: Convolution) -> float:
    """Length of a side of a square of so many numbers, or of a row."""
    return size if shape.one_d else math.sqrt(size)
