"""One answer for all ranks of a distributed run: gradients cannot be exchanged between a CPU and a GPU.

The first rank that decides for a model writes its answer into the run's key-value store, all others take it from there.
Nobody waits for anybody, so a rank that never asks cannot hang the others.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from placer import machine
from placer.decision.decision import Decision
from placer.workload import Workload

log = logging.getLogger(__name__)

#: Seconds to reach the launcher's store when the process group does not exist yet.
_PATIENCE = 5.0


def distributed() -> bool:
    """Whether this process is one of several of a run."""
    if os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        return True
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    return torch.distributed.get_world_size() > 1


def own_accelerator() -> str | None:
    """In a distributed run the accelerator of this rank, which a kind without a number means in it; else None."""
    local = os.environ.get("LOCAL_RANK", "")
    if not local.isdecimal() or not distributed():
        return None
    accelerators = machine.accelerators()
    return accelerators[int(local) % len(accelerators)] if accelerators else None


def agreed(decision: Decision, candidates: Iterable[str], workload: Workload, *, tuned: bool = False) -> Decision:
    """The decision, with the device that the first rank chose for this model in this run; ``tuned``: its threads too.

    ``candidates`` are the devices this rank can drive. Without a store (no process group yet, not started by torchrun)
    every rank keeps its own answer: equal ones, as long as they read the same profile and find the same memory free.
    """
    if not distributed():
        return decision
    try:
        store = _store()
        if store is None:
            return decision
        # Written if nothing stands there yet; what stands there in any case, which may be this rank's own answer.
        answer = f"{decision.device} {decision.threads}"
        device, _, count = store.compare_set(_name(workload), "", answer).decode().partition(" ")
    except RuntimeError as error:  # torch.distributed's own errors are: the store is gone, or too slow
        log.debug("ranks could not agree: %s", error)
        return decision
    threads = int(count) if tuned else decision.threads
    # Ranks drive accelerators of their own: what is common to them is the kind.
    kind = device.split(":")[0]
    reachable = (decision.device, *(tuple(candidates) or machine.available_devices()))
    mine = next((name for name in reachable if name.split(":")[0] == kind), None)
    if mine is None or (mine, threads) == (decision.device, decision.threads):
        # Nothing of that kind here: better to fail where gradients meet, in torch's own words, than to guess.
        return decision
    confidence = decision.confidence if mine == decision.device else None  # it was in another answer
    reason = f"{mine}: as the first rank chose for all (here: {decision.reason})"
    return replace(decision, device=mine, threads=threads, confidence=confidence, reason=reason)


def _name(workload: Workload) -> str:
    """The same on every rank, for one model: not its batch, which may differ from rank to rank."""
    kind = type(workload.model)
    parameters = 0
    for module in workload.modules:
        parameters += sum(p.numel() for p in module.parameters() if not is_lazy(p))
    name = getattr(workload.model, "__qualname__", f"{kind.__module__}.{kind.__qualname__}")
    return f"placer/{name}/{parameters}/{workload.mode}"


def _store() -> Any:
    """The default group's store, else the launcher's, else None."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.distributed_c10d._get_default_store()
    return _launchers_store()


@functools.cache
def _launchers_store() -> Any:
    """torchrun keeps a store of its own for its workers, there before they start."""
    environment = os.environ
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    stores: Any = torch.distributed  # which does not say that it exports them
    with contextlib.suppress(RuntimeError, ValueError, KeyError):
        store = stores.TCPStore(
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
            is_master=False,
            timeout=timedelta(seconds=_PATIENCE),
        )
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return stores.PrefixStore(f"placer/attempt_{attempt}", store)
    return None
