"""``placer.fleet``: checks the arguments of a step or takes a job, and compares machines for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from placer.fleets.machine import Machine, machine_named
from placer.fleets.pricing import compare
from placer.fleets.result import Fleet
from placer.jobs import check_arguments
from placer.workload import Job, Workload, make_workload


def fleet(
    model: Callable[..., Any] | Job,
    batch_shape: Any = None,
    *,
    machines: Iterable[Machine | str] | Machine | str,
    objective: str = "time",
    target: float | None = None,
    example: Any = None,
    mode: str | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: str | torch.optim.Optimizer | None = None,
    steps: int | None = None,
    data: str = "host",
    autocast: torch.dtype | bool | None = None,
    modules: nn.Module | Iterable[nn.Module] | None = None,
) -> Fleet:
    """Where a step, or a job, should run: every machine with its time, money and energy, the best first.

    Nothing is run or moved. Arguments that ``placer.explain`` has too mean the same.

    Args:
        machines: ``Machine`` objects, names of profiles, or GPUs of the catalog (``"T4"``) beside this machine's CPU.
        objective: ``"time"``, ``"cost"`` (for machines with a price) or ``"energy"``.
        target: seconds. Of all steps, or repeats of the job, where their number is given; else of one. What reaches it
            comes first, the cheapest at the top.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: nothing is called so (ProfileMissing, UnknownGPU), no machine can price it, or the step cannot be
            traced (TraceError).
    """
    given = (machines,) if isinstance(machines, (Machine, str)) else tuple(machines)
    what: Workload | Job
    if isinstance(model, Job):
        check_arguments((batch_shape, example, mode, loss, optimizer, steps, autocast, modules), data, "keep")
        what = model
    else:
        what = make_workload(
            model, batch_shape, example=example, mode=mode, loss=loss, optimizer=optimizer, steps=steps, data=data,
            autocast=autocast, modules=modules,
        )  # fmt: skip
    return compare(what, [_machine(one) for one in given], objective=objective, target=target)


def _machine(given: Any) -> Machine:
    if isinstance(given, Machine):
        return given
    if isinstance(given, str):
        return machine_named(given)
    raise TypeError(f"a machine is a placer.Machine, or the name of a profile or a GPU, not {given!r}")
