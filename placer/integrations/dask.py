"""Dask: profiles of the hosts of a cluster's workers, and the workers and the device on which a task finishes first.

>>> cluster = calibrate(client, budget=60)
>>> choice = choose_worker(model, (64, 84), cluster=cluster)
>>> client.submit(train, workers=choice.workers)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, wait
from distributed import TimeoutError as Late

from placer.errors import PlacerError, first_line
from placer.fleets import Fleet, Traced
from placer.integrations import collected, on_node
from placer.integrations.cluster_choice import best_group, reason
from placer.integrations.cluster_nodes import Cluster, Node
from placer.workload import Job, Workload, check_devices

_ASKING = 120.0  # seconds in which a worker's host says what it is
#: What Dask sets in its workers. Of these, torch takes MKL's.
_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class WorkerChoice:
    """``workers`` are addresses. ``threads`` is for ``torch.set_num_threads`` in the task: Dask's workers have one."""

    kind: str
    workers: tuple[str, ...]
    device: str
    threads: int
    reason: str
    fleet: Fleet


def calibrate(
    client: Client, *, budget: float = 60.0, devices: Iterable[str] | str | None = None, timeout: float | None = None
) -> Cluster:
    """Ask all workers what their hosts are, and calibrate one of each kind of which no profile is kept.

    Arguments and the answer are those of ``placer.integrations.ray.calibrate``, with workers in place of nodes.
    """
    checked = check_devices(devices)
    request = {"budget": budget, "devices": checked and list(checked)}
    answers, failed = _ask(client, list(_workers(client)), {"measure": False}, _ASKING)
    found = {worker: collected.kind_of(answer["fingerprint"]) for worker, answer in answers.items()}
    while wanted := collected.to_measure({w: kind for w, kind in found.items() if w not in failed}):
        measured, refused = _ask(client, wanted, request, 3.0 * budget + _ASKING if timeout is None else timeout)
        for worker, answer in measured.items():
            try:
                collected.keep(found[worker], answer["profile"])
            except PlacerError as error:
                refused[worker] = first_line(error)
        failed |= refused
    gpus = {worker: len(answer["fingerprint"]["accelerators"]) for worker, answer in answers.items()}
    nodes = []
    for worker, info in _workers(client).items():
        resources = {"CPU": info["nthreads"], "GPU": gpus.get(worker, 0), **info["resources"]}
        nodes.append(Node(worker, str(info["name"]), worker, resources=resources, kind=found.get(worker, "")))
    kept = {kind: profile for kind in set(found.values()) if (profile := collected.kept(kind)) is not None}
    return Cluster(tuple(nodes), kept, failed)


def choose_worker(
    model: Callable[..., Any] | Workload | Job | Traced, batch_shape: Any = None, *, cluster: Cluster,
    objective: str = "time", price: Mapping[str, float] | None = None, target: float | None = None, **workload: Any,
) -> WorkerChoice:  # fmt: skip
    """The workers and the device on which a step or a job is best. Arguments as for ``ray.choose_node``."""
    group, fleet = best_group(cluster, model, batch_shape, objective, price, target, workload)
    workers, device = tuple(node.id for node in group.nodes), fleet.rows[0].device
    threads = group.cpus if device == "cpu" else 1
    return WorkerChoice(group.machine.name, workers, device, threads, reason(fleet, len(workers), None), fleet)


def _ask(
    client: Client, workers: Sequence[str], request: dict[str, Any], timeout: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The answers of workers, and why others gave none."""
    futures = {
        worker: client.submit(on_node.ask, request, timeout, _LIMITS, workers=[worker], pure=False, retries=0)
        for worker in workers
    }
    allowed = timeout + on_node.STARTING
    end = time.monotonic() + allowed
    while (alive := _workers(client)) and time.monotonic() < end:
        left = [future for worker, future in futures.items() if worker in alive and not future.done()]
        if not left:
            break
        with suppress(Late):
            wait(left, timeout=1.0)
    answers = {w: f.result() for w, f in futures.items() if f.status == "finished"}
    failed = {w: str(answer["error"]) for w, answer in answers.items() if "error" in answer}
    for worker, future in futures.items():
        if future.status == "error":
            failed[worker] = first_line(future.exception())
        elif worker not in answers:
            failed[worker] = f"no answer within {allowed:g} s" if worker in alive else "the worker died"
            future.cancel()
    return {w: answer for w, answer in answers.items() if w not in failed}, failed


def _workers(client: Client) -> dict[str, dict[str, Any]]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])
