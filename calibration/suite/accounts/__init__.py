"""Published accounts of "the same work on a CPU and on a GPU", rebuilt: a table of steps, priced by name.

``accounts.json`` holds the accounts and the CPUs they name. What an account reported stays in the collection
(``accounts.jsonl``), found by ``id``; ``docs/dev/accounts.md`` says what its time includes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts.networks import NETWORKS, Reads, by_token
from placer.calibration.suite.entry import Operator, Supervised, cross_entropy, mean_squared, own_loss
from placer.pricing import CLASSES, COPIED, CpuSpeeds
from placer.workload import Data, Outputs, Part

#: A column of the table: the account's time on its CPU, and with its GPU.
Side = Literal["cpu", "gpu"]
SIDES: tuple[Side, ...] = ("cpu", "gpu")
#: What a step ends in: its output, on the host; nothing that is brought back; a wait for the device, as one value is
#: read; else the loss that is trained, of the network with targets (the last input), of its output, or its own.
End = Literal["output", "stays", "waited", "cross entropy", "mse", "classes", "tokens", "zeros", "own"]

#: Share of a data sheet's peak that a large product reaches: 0.84 to 0.87 on one core of the shipped profiles.
REACHED = 0.85
#: Bytes/s that one core copies at the most; those of the shipped profiles copy 13 to 25 GB/s.
OF_ONE_CORE = 20e9
#: Work per clock by generation, Skylake = 1.0. From what the makers say of a generation over the one before: Intel
#: Nehalem to Sandy Bridge +11 %, Ivy Bridge +5 %, Haswell +10 %, Broadwell +5 %, Skylake +10 %, Sunny Cove and its
#: port Cypress Cove +18 %, Golden Cove +19 %; AMD Zen 2 +15 %, Zen 3 +19 %, Zen 4 +13 %, with Zen 2 level with Skylake.
#: Apple's M1 (Firestorm) at 3.2 GHz is level with Zen 3 at 4.8 GHz in SPEC CPU 2017 (AnandTech, November 2020).
PER_CLOCK = {
    "Westmere": 0.68, "Sandy Bridge": 0.75, "Haswell": 0.87, "Broadwell": 0.91, "Skylake": 1.0, "Golden Cove": 1.40,
    "Zen 2": 1.0, "Zen 3": 1.19, "Zen 4": 1.34, "Firestorm": 1.75,
}  # fmt: skip
#: Clock and generation of the CPU that each shipped profile was measured on, as clouds sell them.
PROFILES = {
    "amd-epyc-2-core": (3.7, "Zen 3"), "amd-epyc-avx512-2-core": (3.7, "Zen 4"),
    "intel-xeon-avx512-2-core": (3.0, "Golden Cove"),
}  # fmt: skip


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CPU by its data sheet. Nobody here has these: the ops of a shipped profile are scaled by three speeds.

    Attributes:
        profile: the shipped profile it is scaled from.
        cores: physical cores that one process uses; torch starts one thread on each. What it costs to start an op on
            more cores than the profile was measured on is not known, and not scaled.
        gigahertz, all_core_gigahertz: the highest that the sheet names with one core busy; with all cores busy.
        flops_per_cycle: float32, of one core: 8 with SSE, 16 with AVX, 32 with two AVX2 multiply-adds (or four of
            128 bits), 64 with two of AVX-512.
        gigabytes_per_second: of all memory channels. Two sockets count as one where one process uses both.
    """

    name: str
    profile: str
    cores: int
    gigahertz: float
    all_core_gigahertz: float
    flops_per_cycle: int
    gigabytes_per_second: float
    generation: str

    def speeds(self, measured: Mapping[str, float]) -> CpuSpeeds:
        """What ``measure_speeds`` would find, on all cores; ``measured`` are the rates of the profile it names."""
        clock, generation = PROFILES[self.profile]
        slower = clock * PER_CLOCK[generation] / (self.gigahertz * PER_CLOCK[self.generation])
        core = REACHED * self.all_core_gigahertz * 1e9 * self.flops_per_cycle
        channels = COPIED * self.gigabytes_per_second * 1e9
        kind = CLASSES["x86-avx512" if self.flops_per_cycle > 32 else "x86-avx2"]
        return CpuSpeeds(
            dispatch_seconds=measured["dispatch_seconds"] * slower,
            flops_per_second=core * self.cores**kind.scaling,
            bytes_per_second=min(channels, self.cores * OF_ONE_CORE),
            core_flops_per_second=core,
            core_bytes_per_second=min(channels, OF_ONE_CORE),
            region_seconds=kind.region_seconds(self.cores),
        )


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"options": "with"}):
    """A step that an account's time is made of.

    Attributes:
        network: a name of ``networks.NETWORKS``, built with ``options``.
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
            self.network, network, batch=inputs, count=self.count, mode="train", optimizer=self.optimizer,
            data=self.data, loss=Reads(loss) if self.reads else loss,
        )  # fmt: skip


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
