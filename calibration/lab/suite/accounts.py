"""Published accounts of "the same work on a CPU and on a GPU", rebuilt: a table of steps, priced by name.

``accounts.json`` holds the accounts and the CPUs they name. What an account reported stays in the collection
(``accounts.jsonl``), found by ``id``; ``docs/dev/accounts.md`` says what its time includes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from placer.calibration.lab.suite.accounts_dense import NETWORKS, Reads, by_token
from placer.calibration.lab.suite.reference import Operator
from placer.calibration.suite.entry import Supervised, cross_entropy, mean_squared, own_loss
from placer.pricing import cpu_profile
from placer.profile import Profile, find_cpu
from placer.workload import Data, Outputs, Part

#: A column of the table: the account's time on its CPU, and with its GPU.
Side = Literal["cpu", "gpu"]
SIDES: tuple[Side, ...] = ("cpu", "gpu")
#: What a step ends in: its output, on the host; nothing that is brought back; a wait for the device, as one value is
#: read; else the loss that is trained, of the network with targets (the last input), of its output, or its own.
End = Literal["output", "stays", "waited", "cross entropy", "mse", "classes", "tokens", "zeros", "own"]


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The CPU of an account: a name that the catalog finds, and the physical cores that one process uses.

    Torch starts one thread on each; two sockets count as one where the process uses both.
    """

    name: str
    cpu: str
    cores: int

    def profile(self) -> Profile:
        """What is known of it before a calibration. Raises UnknownCPU."""
        return cpu_profile(find_cpu(self.cpu), self.cores)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"options": "with"}):
    """A step that an account's time is made of.

    Attributes:
        network: a name of ``NETWORKS``, built with ``options``.
        inputs: shapes, as ``32,84`` or ``32:int64``; ``edges:10,60`` are 60 edges among 10 nodes.
        ends: see ``End``. Steps that end in a loss train. ``reads``: the script reads the loss in every step.
        count: how often the step runs in the unit that the account reports (an epoch, a forward). Only the proportion
            between the steps of a point matters to the ratio.
        on_host: runs on the CPU in both columns, like a data loader or an environment.
        counted: the columns whose time includes it. Most accounts time the same on both sides; some do not.
    """

    network: str
    inputs: tuple[str, ...]
    options: dict[str, Any] = {}
    ends: End = "output"
    reads: bool = False
    optimizer: str = "adam"
    data: Data = "host"
    count: float = 1.0
    on_host: bool = False
    counted: tuple[Side, ...] = SIDES

    def part(self) -> Part:
        """The step as a part of a job. Raises ImportError where the network is of a package that is not installed."""
        network = NETWORKS[self.network](**self.options)
        loss = {"classes": cross_entropy, "tokens": by_token, "zeros": mean_squared}.get(self.ends, own_loss)
        if self.ends in ("stays", "waited"):
            network = Operator(network, self.ends)
        elif self.ends in ("cross entropy", "mse"):
            assert isinstance(network, nn.Module)
            network = Supervised(network, nn.CrossEntropyLoss() if self.ends == "cross entropy" else nn.MSELoss())
        inputs = tuple(example(text) for text in self.inputs)
        if self.ends in ("output", "stays", "waited"):
            outputs: Outputs | None = "host" if self.ends == "output" else None
            return Part(
                self.network, network, batch=inputs, count=self.count, mode="infer", data=self.data, outputs=outputs
            )
        return Part(
            self.network,
            network,
            batch=inputs,
            count=self.count,
            mode="train",
            optimizer=self.optimizer,
            data=self.data,
            loss=Reads(loss) if self.reads else loss,
        )


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pair of times of an account. ``at`` is its label in the collection.

    ``gpu`` and ``cpu`` are its own where the account has several; ``gpu_host`` is the CPU beside the GPU where that is
    another machine.
    """

    at: str
    steps: tuple[Step, ...]
    gpu: str = ""
    cpu: str = ""
    gpu_host: str = ""


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published account. ``gpu`` is a name that the catalog finds, ``cpu`` one of the hosts.

    ``assumed``: "" where the account names both; else what stands in, or was assumed, in a few words.
    """

    id: str
    gpu: str
    cpu: str
    points: tuple[Point, ...]
    assumed: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: tuple[Host, ...]
    accounts: tuple[Account, ...]


@cache
def _table() -> _Table:
    return msgspec.json.decode((files(__package__) / "accounts.json").read_bytes(), type=_Table)


def accounts() -> tuple[Account, ...]:
    """Every account that is rebuilt."""
    return _table().accounts


@cache
def hosts() -> dict[str, Host]:
    """The CPUs of the accounts, by name."""
    return {host.name: host for host in _table().hosts}


def example(text: str) -> Tensor:
    """The CPU tensor that an input of a step describes: zeros, but for edges."""
    first, _, second = text.partition(":")
    if first in ("edges", "adjacency"):
        nodes, count = map(int, second.split(","))
        edges = torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(0))
        if first == "edges":
            return edges
        matrix = torch.zeros(nodes, nodes)
        matrix[edges[0], edges[1]] = 1.0
        return matrix
    dtype: torch.dtype = getattr(torch, second or "float32")
    return torch.zeros([int(size) for size in first.split(",")], dtype=dtype)
