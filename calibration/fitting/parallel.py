"""Runs independent fits, in several processes where that is done sooner, with the numbers that one process gives.

Fitting holds Python's interpreter lock most of the time, so threads gain nothing worth having (a tenth on two cores).
Processes do, but importing PyTorch and scikit-learn takes each of them seconds: a quick calibration is fitted in one.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from threadpoolctl import threadpool_limits

from placer.machine import usable_cores

T = TypeVar("T")

#: Seconds that a fit takes for each op it rests on, and until workers have started: on two cores of an Intel Xeon.
SECONDS_PER_OP, SECONDS_TO_START = 1.2e-4, 2.3
#: Seconds without work after which a worker ends: the fits of one calibration follow each other sooner.
IDLE_SECONDS = 10


def worth_workers(ops: int) -> int:
    """How many processes finish a fit of so many ``ops`` soonest; 1: this process alone."""
    cores = usable_cores()
    saved = ops * SECONDS_PER_OP * (1.0 - 1.0 / cores)
    if saved <= SECONDS_TO_START or multiprocessing.current_process().daemon:  # a daemon may have no children
        return 1
    return int(effective_n_jobs(cores))  # 1 where the system cannot start processes


def run_all(fits: Sequence[Callable[[], T]], workers: int) -> list[T]:
    """What ``fits`` return, in order. With more than one worker, all they hold and return is pickled.

    Linear algebra runs on one thread in any case: sums taken by several differ in their last digits, and on matrices of
    these sizes threads cost more than they give.
    """
    workers = min(workers, len(fits))
    with threadpool_limits(limits=1, user_api="blas"):
        if workers > 1:
            try:
                return _in_processes(fits, workers)
            except (BrokenProcessPool, OSError):  # no room for so many processes: one will do
                pass
        return [fit() for fit in fits]


def _in_processes(fits: Sequence[Callable[[], T]], workers: int) -> list[T]:
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1, idle_worker_timeout=IDLE_SECONDS):
        # Arrays are pickled whatever their size: joblib would put large ones into files and map them.
        results: list[T] = Parallel(batch_size=1, pre_dispatch="all", max_nbytes=None)(delayed(fit)() for fit in fits)
    return results
