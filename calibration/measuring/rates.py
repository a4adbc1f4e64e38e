"""Measures what a data sheet says of a device: peak arithmetic, bandwidth, dispatch, launch, waits, copies.

These rates anchor the physical floor under every op, and a person can compare them with the machine's specification.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from placer import machine
from placer.calibration.measuring.faults import synchronizer
from placer.calibration.measuring.recording import WARM, keep_busy
from placer.calibration.measuring.timing import Clock, measure, percentile
from placer.pricing import FINE_GRAIN
from placer.pricing.physics import FRESH_RATE
from placer.pricing.timeline import FRESH, SIZES
from placer.profile import THREAD_SECONDS

#: Shares that the time for all rates of a device is divided into.
SHARES = 13
#: Dtypes whose matrix-product rate is measured; a dtype the device refuses is left out and priced by the floor.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
#: On an accelerator no tensor made here takes more than this share of its free memory.
MEMORY_SHARE = 1 / 16
#: A matrix product of this many seconds hides the launch: a larger one runs at the same rate.
LONG_PRODUCT = 5e-3
#: What a device raises for a dtype that it lacks: a TypeError for float64 on Apple's. ``NotImplementedError`` is a
#: RuntimeError.
REFUSED = (RuntimeError, TypeError)


@dataclass(frozen=True)
class RateTimer:
    """Times functions on one device, each in about ``share`` seconds. ``synchronize`` waits for it; None on the CPU."""

    synchronize: Callable[[], None] | None
    share: float
    clock: Clock

    def __call__(self, fn: Callable[[], object], shares: float = 1.0, *, best: bool = False) -> float:
        """Median seconds of ``fn()``, or (``best``) their 10th percentile.

        The latter is for what a device can do: threads that have not spread over the cores yet are no part of that.
        """
        blocks = measure(fn, seconds=self.share * shares, synchronize=self.synchronize, clock=self.clock)
        return percentile(blocks, 0.1 if best else 0.5)


def measure_rates(device: str, *, seconds: float, clock: Clock = time.perf_counter) -> dict[str, float]:
    """All rates of one device within about ``seconds``: FLOP/s, bytes/s and seconds, as named in a ``Device``.

    On an accelerator also ``memory_bytes`` and ``flops/tf32``, and where this call was the process's first use of it
    ``context_seconds``, ``first_call_seconds`` and ``first_use/...`` (see ``first_use``). On a CPU with several threads
    also those of ``thread_rates``.
    """
    synchronize = synchronizer(device)
    timer = RateTimer(synchronize, seconds / SHARES, clock)
    rates = {} if synchronize is None else first_use(device, synchronize, clock)
    if synchronize is not None and clock is time.perf_counter:
        keep_busy(device, WARM, clock)
    products = {str(dtype).removeprefix("torch."): flops_per_second(device, dtype, timer) for dtype in DTYPES}
    if synchronize is not None:
        products["tf32"] = flops_per_second(device, torch.float32, timer, tf32=True)
    rates |= {f"flops/{name}": rate for name, rate in products.items() if rate is not None}
    source = torch.ones(16 << 20 if synchronize is None else most_elements(device, 128 << 20), device=device)
    # Far larger than any cache; read and written bytes both count (as in STREAM).
    rates["bytes_per_second"] = 2.0 * source.nbytes / timer(partial(torch.empty_like(source).copy_, source))
    if synchronize is not None:
        rates |= measure_queue(device, synchronize, seconds=2.0 * timer.share, clock=clock)
        return {**rates, **_copy_rates(device, timer)}
    tiny, large = torch.ones(8), torch.ones(FRESH_NUMBERS)
    rates["dispatch_seconds"] = timer(partial(torch.neg, tiny, out=torch.ones(8)), best=True)
    # How fast results are written that are so large that the system gives memory for each of them anew.
    rates[FRESH_RATE] = large.nbytes / timer(partial(torch.neg, large))
    return rates | thread_rates(torch.get_num_threads(), timer)


def flops_per_second(device: str, dtype: torch.dtype, timer: RateTimer, *, tf32: bool = False) -> float | None:
    """Peak FLOP/s of square matrix products; None for a dtype that the device refuses.

    float32 is multiplied as such on an accelerator, whatever this process is set to, or (``tf32``) in TF32.
    """
    best = None
    for n in (256, 512, 1024) if device == "cpu" else (1024, 4096, 8192):
        try:
            a = torch.randn(n, n, device=device).to(dtype)
            b = torch.randn(n, n, device=device).to(dtype)
            with contextlib.nullcontext() if device == "cpu" else products_in_tf32(tf32):
                seconds = timer(partial(torch.mm, a, b), 0.3, best=True)
        except REFUSED:  # not implemented for this dtype here, or out of memory
            break
        rate = 2.0 * n**3 / seconds
        if best is not None and rate < best / 4:
            break
        best = max(rate, best or 0.0)
        if seconds > (0.05 if device == "cpu" else LONG_PRODUCT):  # the rate of a slow dtype is known well enough
            break
    return best


@contextlib.contextmanager
def products_in_tf32(on: bool) -> Iterator[None]:
    """Let CUDA multiply float32 matrices in TF32 (``on``) or not, until the context is left.

    torch 2.9 and later have a switch for CUDA's products alone. It is used where there is one: torch refuses to answer
    the older switches where they contradict it.
    """
    products = torch.backends.cuda.matmul
    newer = hasattr(products, "fp32_precision")
    name, value = ("fp32_precision", "tf32" if on else "ieee") if newer else ("allow_tf32", on)
    before = getattr(products, name)
    setattr(products, name, value)
    try:
        yield
    finally:
        setattr(products, name, before)


#: Numbers of a result that is larger than what an allocator keeps memory for (``FRESH`` bytes).
FRESH_NUMBERS = 3 * FRESH // 8


#: Numbers of a loop that torch gives one thread, and of one that it gives several (``pricing.shapes``).
_ONE_PIECE, _TWO_PIECES = FINE_GRAIN, 2 * FINE_GRAIN
#: Images of a convolution that a team of as many threads runs, channels and positions: so small that oneDNN gives each
#: thread one image.
_TEAM, _CHANNELS, _POSITIONS = 2, 16, 16
#: Seconds that a thread takes to be made at the most: what takes longer waits for other programs.
MOST_OF_A_THREAD = 4.0 * THREAD_SECONDS


def thread_rates(threads: int, timer: RateTimer) -> dict[str, float]:
    """``region_seconds`` and ``thread_seconds`` of this process's ``threads``, if more than two: see ``profile.Cores``.

    A loop of two pieces takes longer than one of a single piece by what starts the region. A convolution that asks for
    a small team takes longer than one that asks for all threads by those that end and are made anew.
    """
    if threads <= _TEAM:
        return {}

    def functions(numbers: int) -> float:
        operand = torch.ones(numbers)
        return timer(partial(torch.exp, operand, out=torch.empty_like(operand)), best=True)

    def convolution(images: int) -> float:
        weight = torch.ones(_CHANNELS, _CHANNELS, 3)
        return timer(partial(F.conv1d, torch.ones(images, _CHANNELS, _POSITIONS), weight), best=True)

    with torch.inference_mode():
        region = functions(_TWO_PIECES) - functions(_ONE_PIECE)
        made = convolution(_TEAM) - convolution(threads)
    of_a_thread = min(max(made, 0.0) / (threads - _TEAM), MOST_OF_A_THREAD)
    return {"region_seconds": max(region, 0.0), "thread_seconds": of_a_thread}


def most_elements(device: str, wanted: int) -> int:
    """``wanted`` float32 elements, or as many as an accelerator has room for."""
    return min(wanted, max(int(machine.memory(device)[0] * MEMORY_SHARE / 4), 1024))


#: Ops of one matrix whose kernels have not run before they are timed.
FIRST_CALLS: tuple[Callable[[Tensor], object], ...] = (
    torch.exp,
    torch.sigmoid,
    torch.sum,
    torch.argmax,
    partial(torch.softmax, dim=1),
    partial(torch.cumsum, dim=1),
    partial(torch.clamp, min=0.0),
    partial(torch.sort, dim=1),
)
#: Channels of convolutions of other shapes: for each a library looks for the fastest kernel when it comes first.
OTHER_CHANNELS = (16, 24, 48)


def _convolved(like: Tensor, channels: int = 8) -> Tensor:
    images = torch.ones(2, channels, 16, 16, device=like.device)
    return F.conv2d(images, torch.ones(channels, channels, 3, 3, device=like.device), padding=1)


def _added_product(square: Tensor) -> Tensor:
    return torch.addmm(torch.ones(8, device=square.device), square, square)


#: Functions of a matrix whose libraries are loaded when an op first needs them, by the name of their rate
#: (``first_use/...``): cuDNN, cuBLASLt, cuFFT and cuSOLVER on CUDA devices.
LIBRARIES: Mapping[str, Callable[[Tensor], object]] = {
    "convolution": _convolved, "product": _added_product, "fourier": torch.fft.rfft, "linear_algebra": torch.linalg.inv,
}  # fmt: skip


def first_use(device: str, synchronize: Callable[[], None], clock: Clock) -> dict[str, float]:
    """``memory_bytes``, and where this call was the process's first use ``context_seconds`` and ``first_call_seconds``.

    Creates the context if there is none: on most devices asking for the memory needs one. A new context loads its
    library of matrix products, which most networks need, and each kernel when it runs first. ``first_use/<library>`` is
    what loading another one takes (see ``LIBRARIES``), ``first_use/shape`` what a convolution of a new shape does. A
    library whose op the device refuses has no rate.
    """
    new = not machine.has_context(device)

    def seconds(fn: Callable[[], object]) -> float:
        start = clock()
        fn()
        synchronize()
        return clock() - start

    def longer(fn: Callable[[], object]) -> float:
        """Seconds that the first call takes longer than the second."""
        return max(seconds(fn) - seconds(fn), 0.0)

    start = clock()
    square = torch.eye(8).to(device)
    torch.mm(square, torch.ones(8, 8, device=device))
    synchronize()
    took = clock() - start
    rates = {"memory_bytes": float(machine.memory(device)[1])}
    if not new:
        return rates
    calls = [longer(partial(op, square)) for op in FIRST_CALLS]
    rates |= {"context_seconds": took, "first_call_seconds": statistics.fmean(calls)}
    for name, op in LIBRARIES.items():
        with contextlib.suppress(*REFUSED):
            rates[f"first_use/{name}"] = longer(partial(op, square))
    if "first_use/convolution" in rates:
        shapes = [longer(partial(_convolved, square, channels)) for channels in OTHER_CHANNELS]
        rates["first_use/shape"] = statistics.median(shapes)
    return rates


#: Launches in a row: enough to tell a kernel from the jitter of a wait, far fewer than any queue holds.
BURST = 64
#: The products that keep the device busy while a burst is issued last this many times as long as issuing takes.
COVER = 4.0
#: Rows of their square matrices: the first size tried, and the largest.
_FIRST, _MOST = 256, 4096
#: Share of the cover that one product takes at the least, so that few launches make it.
_LEAST_PART = 1 / 8
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 200
#: Seconds between the starts of two kernels that no device goes below. Less is a disturbed measurement.
_LEAST_KERNEL = 1e-7


def measure_queue(
    device: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """The rates of a queue (seconds), measured within about ``seconds``.

    ``issue_seconds``: the host's time per launch. ``launch_seconds``: from there until a kernel starts on an idle
    device. ``dispatch_seconds``: the device's time for a kernel that does next to nothing, until the next one starts.
    ``sync_seconds``: waiting for a device that is idle.
    """
    tiny = torch.ones(8, device=device)

    def issued(count: int) -> float:
        """Seconds until so many kernels are issued to an idle device."""
        start = clock()
        for _ in range(count):
            tiny.neg_()
        return clock() - start

    def waited(products: int, count: int) -> float:
        """Seconds until so many products, and kernels behind them, are done on an idle device."""
        synchronize()
        start = clock()
        for _ in range(products):
            torch.mm(square, square, out=product)
        for _ in range(count):
            tiny.neg_()
        synchronize()
        return clock() - start

    def medians(*timed: Callable[[], float]) -> list[float]:
        """Of what each times, in turns: the clock of a device rises while it works."""
        for function in timed:
            function()
        rounds: list[list[float]] = []
        deadline = clock() + len(timed) * seconds / 5
        while len(rounds) < _LEAST_ROUNDS or (len(rounds) < _MOST_ROUNDS and clock() < deadline):
            synchronize()
            rounds.append([function() for function in timed])
        return [statistics.median(some) for some in zip(*rounds, strict=True)]

    rows = _FIRST
    square = product = torch.ones(1, device=device)
    (idle,) = medians(partial(waited, 0, 0))
    (burst,) = medians(partial(issued, BURST))
    (single,) = medians(partial(waited, 0, 1))
    issue, wanted = burst / BURST, COVER * burst
    # A few products that keep the device busy for some times as long as a burst is issued.
    while True:
        square = torch.ones(rows, rows, device=device)
        product = torch.empty_like(square)
        took = max(medians(partial(waited, 1, 0))[0] - single, 0.0)
        if took >= _LEAST_PART * wanted or rows >= _MOST:
            break
        rows *= 2
    products = math.ceil(min(max(wanted / max(took, 1e-9), 1.0), 1.0 / _LEAST_PART))
    # Behind long kernels the small ones wait in the queue and run back to back, however slowly they are issued.
    with_burst, without = medians(partial(waited, products, BURST), partial(waited, products, 0))
    kernel = (with_burst - without) / BURST
    if kernel < _LEAST_KERNEL:  # disturbed: it is no longer than what the host was seen to issue one in
        kernel = max(issue, _LEAST_KERNEL)
    return {
        "issue_seconds": issue,
        "launch_seconds": max(single - issue - kernel - idle, 0.0),
        "dispatch_seconds": kernel,
        "sync_seconds": idle,
    }


#: Bytes that other work goes through before a copy is timed: more than a core's own caches hold.
OTHER_WORK = 16 << 20
#: Copies of one size that are timed, and of the largest, which takes some 50 ms into fresh pages.
COPIES, LARGE_COPIES = 9, 3


def _copy_rates(device: str, timer: RateTimer) -> dict[str, float]:
    """What a copy costs, as steps make them (see ``pricing.timeline``): ``copy/{h2d,d2h}/{pageable,pinned}/``...

    Of pageable memory the seconds of copies of some sizes. ``seconds_per_tensor`` and ``bytes_per_second`` of these are
    a line through the smallest and the largest that is no fresh memory, for who wants two numbers; of pinned memory,
    whose copies are issued without waiting, they are all that is measured.
    """
    rates: dict[str, float] = {}
    room = 4 * most_elements(device, SIZES[-1] // 4)
    sizes = [size for size in SIZES if size <= room]
    for direction in ("h2d", "d2h"):
        prefix = f"copy/{direction}/pageable"
        seconds = {size: _seconds_in_step(device, size, direction, timer.clock) for size in sizes}
        rates |= {f"{prefix}/{size}": took for size, took in seconds.items()}
        rates |= _line(prefix, seconds, sizes[0], max(size for size in sizes if size < FRESH))
    small, large = 64, most_elements(device, 16 << 20)
    for direction in ("h2d", "d2h"):
        seconds = {}
        for elements in (small, large):
            try:
                host = torch.ones(elements).pin_memory()
            except RuntimeError:  # no pinned memory on this accelerator
                return rates
            card = torch.ones(elements, device=device)
            source, target = (host, card) if direction == "h2d" else (card, host)
            copy = partial(target.copy_, source, non_blocking=direction == "h2d")
            seconds[4 * elements] = timer(copy, 0.5)
        rates |= _line(f"copy/{direction}/pinned", seconds, 4 * small, 4 * large)
    return rates


def _seconds_in_step(device: str, size: int, direction: str, clock: Clock) -> float:
    """Median seconds of a copy of ``size`` bytes of pageable memory into a new tensor, after other work."""
    other, source = torch.ones(OTHER_WORK // 4), torch.ones(size // 4, device="cpu" if direction == "h2d" else device)
    target = torch.device(device if direction == "h2d" else "cpu")
    source.to(target)
    times = []
    for _ in range(COPIES if size < FRESH else LARGE_COPIES):
        other.add_(1.0)
        start = clock()
        source.to(target)  # of pageable memory it returns once it is done
        times.append(clock() - start)
    return statistics.median(times)


def _line(prefix: str, seconds: Mapping[int, float], small: int, large: int) -> dict[str, float]:
    """The seconds of a copy of ``small`` bytes, and the rate of what a copy of ``large`` bytes takes longer."""
    longer = max(seconds[large] - seconds[small], 1e-9)
    return {f"{prefix}/seconds_per_tensor": seconds[small], f"{prefix}/bytes_per_second": (large - small) / longer}
