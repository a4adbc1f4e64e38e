"""Asks ``placer.choose`` again and again, in surroundings that make forks difficult; says how often it was answered.

    python forking.py kernel|ray COUNT

In a Jupyter kernel or in a task of Ray: beside eight busy threads, with a data loader's workers at work. Every answer
rests on a trace that was made in a forked child.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.tracing import child


def answers(count: int) -> int:
    """How many of so many questions were answered from a trace of a child."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    found = 0
    for _ in range(count):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", placer.PlacerWarning)  # a worker's thread may be uncalibrated
            answered = "cpu" in placer.choose(model, (3, 4), devices="cpu").predictions
        assert answered, [str(warning.message) for warning in caught]
        found += answered
    assert not child._autograd_has_threads()
    return found


def beside_threads(count: int) -> int:
    done = threading.Event()

    def busy() -> None:
        if sys.platform == "linux":  # they take what is left of two cores, and are interrupted while they hold locks
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        work: queue.Queue[list[int]] = queue.Queue()  # takes locks, allocates, and uses torch's own threads
        while not done.is_set():
            work.put(list(range(1000)))
            work.get()
            np.random.normal(size=1000)  # noqa: NPY002 - the generator that all threads share
            torch.randn(64, 64) @ torch.randn(64, 64)

    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)  # before the threads: a worker of torch's draws, and hangs where one of them held that lock
    next(batches)
    sys.setswitchinterval(1e-4)  # threads take turns often, and the one that asks has its own
    threads = [threading.Thread(target=busy) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        return answers(count)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        assert sum(1 for _ in batches) == 15  # its workers are as they were


def in_a_kernel(count: int) -> int:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    said: list[str] = []
    try:
        client.execute_interactive(
            f"import forking; print('answered', forking.beside_threads({count}))",
            timeout=600,
            output_hook=lambda message: said.append(str(message["content"].get("text", message["content"]))),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    words = " ".join(said).split()
    assert "answered" in words, said
    return int(words[words.index("answered") + 1])


def in_a_task(count: int) -> int:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        return int(ray.get(ray.remote(beside_threads).remote(count), timeout=600))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    where, count = sys.argv[1], int(sys.argv[2])
    print({"kernel": in_a_kernel, "ray": in_a_task}[where](count))
