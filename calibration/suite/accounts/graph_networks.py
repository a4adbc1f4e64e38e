"""Graph networks: one layer of attention or convolution over a random graph, and a network over one molecule."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import Waited


class Attention(nn.Module):
    """A graph attention layer of one head over features (nodes, 100) and edges (2, number) or (nodes, nodes)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(100, 100, bias=False)
        self.attend = nn.Parameter(torch.zeros(200))
        self.bias = nn.Parameter(torch.zeros(100))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = x.shape[0]
        source, target = edges.nonzero().t() if edges.shape == (nodes, nodes) else edges
        loops = torch.arange(nodes, device=x.device)
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        x = self.weight(x)
        sent, received = x[source], x[target]
        scores = torch.exp(F.leaky_relu((torch.cat([received, sent], dim=1) * self.attend).sum(dim=1), 0.2))
        total = torch.zeros_like(x).index_add(0, target, scores[:, None] * sent)
        norm = x.new_zeros(nodes).index_add(0, target, scores)
        return total / norm[:, None] + self.bias


class Convolution(nn.Module):
    """A graph convolution with symmetric normalisation, as torch_geometric computes it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = x.shape[0]
        loops = torch.arange(nodes, device=x.device)
        source, target = torch.cat([edges, loops.expand(2, -1)], dim=1)
        ones = x.new_ones(source.shape[0])
        scale = x.new_zeros(nodes).scatter_add(0, target, ones).pow(-0.5)
        norm = scale[source] * scale[target]
        x = self.weight(x)
        sent = norm[:, None] * x.index_select(0, source)
        return torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(sent), sent) + self.bias


class MessagePassing(nn.Module):
    """Gilmer et al.'s network (2017), 64 and 128 wide: atoms (nodes, 39) and bonds (edges, 11) to one value."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(39, 64), nn.ReLU())
        self.edge = nn.Sequential(nn.Linear(11, 128), nn.ReLU(), nn.Linear(128, 64 * 64))
        self.bias = nn.Parameter(torch.zeros(64))
        self.update = nn.GRU(64, 64)
        self.readout = nn.LSTM(128, 64, num_layers=3)
        self.predict = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, atoms: Tensor, bonds: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        x = self.project(atoms)
        state = x[None]
        for _ in range(6):
            weights = self.edge(bonds).view(-1, 64, 64)
            messages = x[source][:, :, None] * weights
            sums = x.new_zeros(x.shape[0], 64, 64).index_add(0, target, messages).sum(dim=1)
            output, state = self.update(F.relu(sums + self.bias)[None], state)
            x = output[0]
        return self._read(x)

    def _read(self, x: Tensor) -> Tensor:
        """Set2Set: six steps of an LSTM that attends to the atoms."""
        summary = x.new_zeros(1, 128)
        state = (x.new_zeros(3, 1, 64), x.new_zeros(3, 1, 64))
        for _ in range(6):
            output, state = self.readout(summary[None], state)
            query = output[0]
            weights = (x * query).sum(dim=1, keepdim=True).softmax(dim=0)
            summary = torch.cat([query, (x * weights).sum(dim=0, keepdim=True)], dim=1)
        out: Tensor = self.predict(summary)
        return out


def random_graph(nodes: int, edges: int, features: int) -> tuple[Tensor, Tensor]:
    """Features and edges."""
    return torch.zeros(nodes, features), torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))


def _attention(nodes: int, kind: str) -> Point:
    """Six edges a node, as pairs or as a matrix."""

    def example() -> tuple[Tensor, Tensor]:
        x, edges = random_graph(nodes, 6 * nodes, 100)
        if kind == "coo":
            return x, edges
        matrix = torch.zeros(nodes, nodes)
        matrix[edges[0], edges[1]] = 1.0
        return x, matrix

    return Point(f"N{nodes} {kind}", (Part(lambda: Waited(Attention()), example, "infer", data="device"),))


def _convolution(at: str, inputs: int, outputs: int, edges: int, nodes: int) -> Point:
    part = Part(
        lambda: Waited(Convolution(inputs, outputs)), lambda: random_graph(nodes, edges, inputs), "infer", data="device"
    )  # fmt: skip
    return Point(at, (part,))


def _molecule() -> tuple[Tensor, ...]:
    """28 atoms; 30 bonds in both directions and a loop on each atom."""
    return torch.zeros(28, 39), torch.zeros(88, 11), torch.randint(28, (2, 88))


ACCOUNTS = (
    Account(
        "gnnjl-gatconv", "RTX 2080 Ti", hosts.SERVER_2020,
        "RTX 2080 Ti and eight cores of a Xeon: neither is named; the script takes the third GPU of a server (2021)",
        "A forward in Julia, waiting for the GPU.",
        tuple(_attention(nodes, kind) for nodes in (10, 100, 1000) for kind in ("coo", "dense")),
        why="At 100 nodes placer says the ratio that is reported, and is not sure of it: the interval is wide.",
    ),
    Account(
        "dgl-lifesci-150", "Tesla T4", hosts.SERVER_2020, "eight cores of a Xeon: the CPU is not named",
        "DGL's message passing in Python; the times, far above a second call's, look like a first call's.",
        (Point("T4", (Part(lambda: Waited(MessagePassing()), _molecule, "infer", data="device"),)),),
        "The account's times are eight times the step on the CPU and a hundred times the step on the GPU: they hold the"
        " first calls of CUDA's libraries and DGL's Python, which a steady step does not have.",
    ),
    Account(
        "mlx-graphs-gcnconv", "Apple M1 Pro", hosts.APPLE_M1_PRO, "Apple M1 Pro: the chip is not named in this table",
        "A call of torch_geometric's layer in its first months on Apple's GPUs; the table names no unit.",
        (
            _convolution("64-128 e1e5 n100", 64, 128, 100_000, 100),
            _convolution("64-128 e1e6 n100", 64, 128, 1_000_000, 100),
            _convolution("8-16 e1e6 n1000", 8, 16, 1_000_000, 1000),
        ),
        "PyTorch's scatter on Apple's GPUs was then far below the chip's bandwidth, worst where many edges meet in few"
        " nodes (1.2 and 15 where placer says 0.004 and 0.04); placer knows these GPUs by their data sheet alone.",
    ),
)  # fmt: skip
