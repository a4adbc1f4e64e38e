"""A published account of "the same work on a CPU and on a GPU", rebuilt so that placer can price it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from placer.calibration.suite.accounts.hosts import Host
from placer.calibration.suite.entry import Mode
from placer.workload import Data

#: A column of the table: the account's time on its CPU, and with its GPU.
Side = Literal["cpu", "gpu"]
BOTH: tuple[Side, ...] = ("cpu", "gpu")


@dataclass(frozen=True)
class Part:
    """A step that an account's time is made of.

    Attributes:
        model: makes the network, on the CPU or on the meta device.
        example: makes the CPU tensors of one step: positional arguments of the model.
        mode, loss, optimizer, data: as ``placer.choose`` takes them.
        count: how often the step runs in the unit that the account reports (an epoch, a forward); not a whole number
            where another unit is told. Only the proportion between the parts of a point matters to the ratio.
        on_host: this part runs on the CPU in both columns, like a data loader or an environment.
        counted: the columns whose time includes it. Most accounts time the same on both sides; some do not.
    """

    model: Callable[[], nn.Module]
    example: Callable[[], tuple[Any, ...]]
    mode: Mode
    loss: Callable[[Any], Any] | None = None
    optimizer: str | torch.optim.Optimizer | None = "adam"
    data: Data = "host"
    count: float = 1.0
    on_host: bool = False
    counted: tuple[Side, ...] = BOTH


@dataclass(frozen=True)
class Point:
    """One pair of times of an account.

    ``at`` is its label in the collection. ``gpu`` and ``cpu`` are its own where the account has several;
    ``gpu_host`` is the CPU beside the GPU where that is another machine.
    """

    at: str
    parts: tuple[Part, ...]
    gpu: str = ""
    cpu: Host | None = None
    gpu_host: Host | None = None


@dataclass(frozen=True)
class Account:
    """A published account, rebuilt. What it reported stays in the collection (``accounts.jsonl``), found by ``id``.

    Attributes:
        gpu: a name that the catalog finds (``placer gpus``): the account's own, or the stand-in.
        cpu: the account's own, or the stand-in.
        stand_in: "" where the account names both; else what was assumed, in a few words.
        includes: what its time includes besides the step, and what of that is not rebuilt.
        why: why placer and the account disagree where they do, in a sentence or two.
    """

    id: str
    gpu: str
    cpu: Host
    stand_in: str
    includes: str
    points: tuple[Point, ...]
    why: str = ""
