"""What other programs take of the cores while this process computes: how far a reading of its speed can be trusted.

Two signs, as neither always shows. What the system says of its cores, less what this process has had, shows programs on
other cores too, which slow a loop on all of them. A thread that computes all along and was not always given a core has
waited for one: its own clock tells, where the system says nothing (a container without /proc).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


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


def waited_share(began: Moment, ended: Moment) -> float:
    """Share of the time between in which the calling thread, which computed all along, had no core: 0 to 1."""
    return _share(1.0 - (ended.thread - began.thread) / (ended.wall - began.wall))


def taken_share(began: Moment, ended: Moment) -> float:
    """Share of the cores' time between that went to other processes, 0 to 1; 0 where nobody can tell."""
    if not began.cores or len(began.cores) != len(ended.cores):
        return 0.0
    others = sum(ended.cores) - sum(began.cores) - (ended.process - began.process)
    return _share(others / (len(began.cores) * (ended.wall - began.wall)))


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
    return tuple(sum(core) - sum(getattr(core, name, 0.0) for name in idle) for core in cores)
