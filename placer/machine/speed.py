"""How fast this machine's CPU starts ops, multiplies matrices and moves memory, measured in half a second.

What other programs take of the cores meanwhile shows in two ways, as neither always does. What the system says of its
cores, less what this process has had, shows programs on other cores too, which slow a loop on all of them. A thread
that computes all along and was not always given a core has waited for one: its own clock tells, where the system says
nothing (a container without /proc).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Seconds of each of the measurements; with the memory they need all stay below half a second.
_SECONDS = 0.05
#: Rows of a matrix, and numbers in a row of memory that is larger than most caches.
_ROWS, _LARGE = 1024, 16 << 20
#: Numbers that torch gives one thread at the least (``at::internal::GRAIN_SIZE``).
_GRAIN = 32768
#: Seconds that a loop's start takes for each of its threads at the most: 44 us on 16 of the slowest kind of CPU
#: (``profile.cpu_kinds``). What takes longer waits for other programs.
_WAKING = 5e-6
#: Several threads take at most so many times as long for the small step as one does: as above.
_WAITING = 2.0
#: Rows of the small step's batch, and numbers in each.
_BATCH, _INPUTS, _HIDDEN = 4, 32, 64


@dataclass(frozen=True)
class MeasuredSpeeds:
    """What a CPU can do with so many ``threads``, and with one.

    ``small_step_seconds``: a training step of ``small_network`` with Adam, in which hardly anything is computed.
    ``flops_per_second``: a product of float32 matrices. ``bytes_per_second``: a copy between main memory, bytes read
    and written. ``core_flops_per_second`` and ``core_bytes_per_second``: the same on one thread. ``region_seconds``: to
    start a loop on all threads. ``others_share``: what other programs took of the time meanwhile, from 0 to 1.
    """

    threads: int
    small_step_seconds: float
    flops_per_second: float
    bytes_per_second: float
    core_flops_per_second: float
    core_bytes_per_second: float
    region_seconds: float
    others_share: float = 0.0


def measure_speeds() -> MeasuredSpeeds:
    """The speeds of this CPU with the threads that the process has, and with one; takes less than half a second.

    Draws no random numbers, and leaves everything as it was.
    """
    import torch

    threads = torch.get_num_threads()
    small_step = _small_step()
    with torch.inference_mode():
        kind: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}  # whatever the process's defaults are
        matrix, large = torch.ones(_ROWS, _ROWS, **kind), torch.ones(_LARGE, **kind)
        product, copied = torch.empty_like(matrix), torch.empty_like(large)

    def added(numbers: int) -> None:
        torch.add(large[:numbers], large[:numbers], out=copied[:numbers])

    def rates() -> tuple[float, float]:
        multiplying = _usual(partial(torch.mm, matrix, matrix, out=product))
        return 2.0 * _ROWS**3 / multiplying, 2.0 * large.nbytes / _usual(partial(copied.copy_, large))

    began = moment()
    small_step_seconds = _usual(small_step)
    with torch.inference_mode():
        flops, moved = rates()
        on_two = min(_times(partial(added, 2 * _GRAIN)))
    try:
        torch.set_num_threads(1)
        alone_since = moment() if threads > 1 else began
        if threads > 1:
            small_step_seconds = min(small_step_seconds, _WAITING * _usual(small_step))
        with torch.inference_mode():
            core_flops, core_moved = rates() if threads > 1 else (flops, moved)
            on_one = min(_times(partial(added, _GRAIN)))
        ended = moment()
    finally:
        torch.set_num_threads(threads)
    return MeasuredSpeeds(
        threads=threads,
        small_step_seconds=small_step_seconds,
        flops_per_second=flops,
        bytes_per_second=moved,
        core_flops_per_second=core_flops,
        core_bytes_per_second=core_moved,
        region_seconds=min(max(on_two - on_one, 0.0), _WAKING * threads) if threads > 1 else 0.0,
        others_share=max(taken_share(began, ended), waited_share(alone_since, ended)),
    )


def _small_step() -> Callable[[], object]:
    """A training step in which hardly anything is computed."""
    import torch

    with torch.inference_mode(mode=False):
        model, batch = small_network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)

    def step() -> None:
        with torch.inference_mode(mode=False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    return step


def small_network() -> tuple[torch.nn.Module, torch.Tensor]:
    """A network that is nearly all overhead, and a batch for it, on the CPU. Draws no random numbers."""
    import torch
    from torch import nn

    kind: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}

    def linear(inputs: int, outputs: int) -> nn.Module:
        made: nn.Module = nn.utils.skip_init(nn.Linear, inputs, outputs, **kind)
        return made

    class SmallNetwork(nn.Sequential):
        """A type of this package, by which ``placer run`` tells it from a user's model."""

    model = SmallNetwork(linear(_INPUTS, _HIDDEN), nn.ReLU(), linear(_HIDDEN, _HIDDEN), nn.Tanh(), linear(_HIDDEN, 8))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    return model, torch.ones(_BATCH, _INPUTS, **kind)


def _usual(run: Callable[[], object]) -> float:
    """Seconds of ``run()``: the lower quartile, since noise only lengthens."""
    in_order = sorted(_times(run))
    return in_order[len(in_order) // 4]


def _times(run: Callable[[], object]) -> list[float]:
    """Seconds of ``run()``, repeated for a while."""
    run()
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while not seconds or time.perf_counter() < end:
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds


# --- what other programs take ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A moment, in seconds.

    ``wall``: by the clock. ``thread`` and ``process``: CPU time that the calling thread and its process have had.
    ``cores``: how long each core that the process may use has been busy; none where nobody can tell.
    """

    wall: float
    thread: float
    process: float
    cores: tuple[float, ...]


def moment() -> Moment:
    """Now."""
    return Moment(time.perf_counter(), time.thread_time(), time.process_time(), _busy_cores())


def children_seconds() -> float:
    """CPU time of the processes that this one has started, of those that run and those that have ended."""
    import psutil

    ended = os.times()
    seconds = ended.children_user + ended.children_system
    with contextlib.suppress(psutil.Error, OSError):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it is ending
                times = child.cpu_times()
                seconds += times.user + times.system
    return seconds


def waited_share(began: Moment, ended: Moment) -> float:
    """Share of the time between in which the calling thread, which computed all along, had no core: 0 to 1."""
    return _share(1.0 - (ended.thread - began.thread) / (ended.wall - began.wall))


def taken_share(began: Moment, ended: Moment) -> float:
    """Share of the cores' time between that went to other processes, 0 to 1; 0 where nobody can tell."""
    if not began.cores or len(began.cores) != len(ended.cores):
        return 0.0
    others = sum(ended.cores) - sum(began.cores) - (ended.process - began.process)
    return _share(others / (len(began.cores) * (ended.wall - began.wall)))


def others_share(began: Moment, ended: Moment) -> float:
    """Share of the cores' time between that others had, as the calling thread, which computed all along, can tell.

    That is what the system says; where it does not, what the thread waited for a core.
    """
    known = began.cores and len(began.cores) == len(ended.cores)
    return taken_share(began, ended) if known else waited_share(began, ended)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _busy_cores() -> tuple[float, ...]:
    """Seconds that each core of this process has been busy since the machine started; what a hypervisor took counts."""
    import psutil

    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, ValueError, IndexError):  # no /proc, or one that says something else
        return ()
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        usable = [cores[number] for number in os.sched_getaffinity(0) if number < len(cores)]
        cores = usable or cores
    # Linux counts the time of virtual machines in ``user`` as well.
    idle = ("idle", "iowait", "guest", "guest_nice")
    busy = []
    for core in cores:
        not_busy = sum(getattr(core, name, 0.0) for name in idle)
        busy.append(sum(core) - not_busy)
    return tuple(busy)
