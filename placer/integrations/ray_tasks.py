"""Asks nodes of a Ray cluster something, one task on each, and waits for no node longer than it was given."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from placer.errors import PlacerError, first_line
from placer.integrations import on_node
from placer.integrations.cluster_nodes import Node

#: What Ray would narrow down to the accelerators that a task asked for. A task that asked for none is to see them all.
_KEPT = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR",
         "ZE_AFFINITY_MASK")  # fmt: skip
#: The worker's environment. Ray sets OMP_NUM_THREADS in a worker after it has expanded this: the node's own is kept.
ENVIRONMENT = {
    on_node.OWN_THREADS: "${OMP_NUM_THREADS}",
    **{f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in _KEPT},
}
#: Why a node gave no answer: where Ray says that it is gone, and where it finds none of that id, or none yet.
DIED, NOT_FOUND = "the node died, or left the cluster", "Ray finds no such node at the moment"
#: Seconds after which the clock is looked at while nothing arrives.
_GLANCE = 1.0


def ask_nodes(
    nodes: Sequence[Node], request: dict[str, Any], timeout: float, take: Callable[[Node, dict[str, Any]], None]
) -> dict[str, str]:
    """Ask all nodes at once; ``take`` gets each answer that says what the node is, also of one that failed then.

    Why a node failed, by its id: it gave no answer, its answer is an error, or ``take`` raised PlacerError. A task asks
    for no CPU and no GPU: a node that is busy is reached, too.
    """
    task = ray.remote(on_node.ask)
    pending = {
        task.options(
            num_cpus=0, max_retries=0, runtime_env={"env_vars": ENVIRONMENT},
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(request, timeout): node
        for node in nodes
    }  # fmt: skip
    failed: dict[str, str] = {}
    allowed = timeout + on_node.STARTING
    end = time.monotonic() + allowed
    try:
        while pending and (left := end - time.monotonic()) > 0:
            ready, _ = ray.wait(list(pending), timeout=min(left, _GLANCE))
            for reference in ready:
                node = pending.pop(reference)
                if why := _taken(reference, node, take):
                    failed[node.id] = why
    finally:
        for reference, node in pending.items():
            ray.cancel(reference, force=True)
            failed[node.id] = f"no answer within {allowed:g} s"
    return failed


def _taken(reference: Any, node: Node, take: Callable[[Node, dict[str, Any]], None]) -> str:
    """Take an answer; why the node failed, else ""."""
    try:
        answer = ray.get(reference)
    except ray.exceptions.RayError as error:
        return _why(error)
    try:
        if "fingerprint" in answer:
            take(node, answer)
    except PlacerError as error:
        return first_line(error)
    return str(answer.get("error", ""))


def _why(error: Exception) -> str:
    if isinstance(error, ray.exceptions.NodeDiedError):
        return DIED
    if isinstance(error, ray.exceptions.TaskUnschedulableError):
        return NOT_FOUND
    text = str(error)
    if "No module named 'placer" in text:
        return "placer is not installed there, or an older one: pip install torch-placer on every node"
    told = [line for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    last = told[-1] if isinstance(error, ray.exceptions.RayTaskError) else told[0]
    return f"{type(error).__name__}: {last.strip()}"
