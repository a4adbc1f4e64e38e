"""Recurrent networks of the accounts (loops of cells and of single operators), and graph networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LanguageModel(nn.Module):
    """Three LSTM cells of 256, stepped in Python: tokens (128, 50) to logits (128, 50, 10001).

    ``carried``: each layer carries its state from step to step. The account's TorchScript variant does not: its cells
    start from zeros in every step and its logits come from these zeros, so that no gradient goes through a cell.
    """

    zeros: Tensor

    def __init__(self, carried: bool) -> None:
        super().__init__()
        self.carried = carried
        self.embed = nn.Embedding(10_001, 128)
        self.cells = nn.ModuleList([nn.LSTMCell(128 if i == 0 else 256, 256) for i in range(3)])
        self.register_buffer("zeros", torch.zeros(128, 256))
        self.project = nn.Linear(256, 10_001)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embed(tokens)
        return self.project(self._layers(embedded) if self.carried else self._steps(embedded))

    def _layers(self, x: Tensor) -> Tensor:
        for cell in self.cells:
            h = c = self.zeros
            outputs, states = [], []
            for t in range(x.shape[1]):
                h, c = cell(x[:, t], (h, c))
                outputs.append(h)
                states.append(c)
            x = torch.stack(outputs, dim=1)
        torch.stack(states)
        return x

    def _steps(self, x: Tensor) -> Tensor:
        c, states = self.zeros, []
        for t in range(x.shape[1]):
            y = x[:, t]
            for cell in self.cells:
                y, c = cell(y, (self.zeros, c))
            states.append(c)
        torch.stack(states)
        return torch.stack([self.zeros] * x.shape[1], dim=1)


class Iterated(nn.Module):
    """``r = tanh(x); x = J r`` with a matrix of 1000 x 1000, a hundred times."""

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.zeros(1000, 1000))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(100):
            x = torch.mv(self.matrix, torch.tanh(x))
        return x


class NextValue(nn.Module):
    """One step of a recurrent layer of 256 for 100 sequences: (1, 100, 1) and a state to the next value's square."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.recurrent = nn.RNN(8, 256)
        self.head = nn.Linear(256, 1)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        output, _ = self.recurrent(self.embed(x), state)
        return self.head(output).square().mean()


class ScannedLSTM(nn.Module):
    """An LSTM of 20 over (1, time, 3), one product, one addition and the gates' own operators in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(3, 80)
        self.recurrent = nn.Parameter(torch.zeros(20, 80))
        self.head = nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(1, 20)
        outputs = []
        for gates in self.inputs(x).unbind(dim=1):
            i, f, g, o = (gates + h @ self.recurrent).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return self.head(torch.stack(outputs, dim=1))


class SentenceScorer(nn.Module):
    """A parser: every pair of words of a sentence (words, 125) is scored alone, and each score is read at once.

    A two-layer bidirectional LSTM of cells, down to the margin loss of wrong heads. The sizes are the parser's
    defaults: LSTMs of 125, a hidden layer of 100. A quarter of the words get a wrong head.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(125 if layer == 0 else 250, 125) for layer in (0, 0, 1, 1)])
        self.head = nn.Linear(250, 100, bias=False)
        self.modifier = nn.Linear(250, 100)
        self.score = nn.Linear(100, 1, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        states = list(words.split(1))
        for forward, backward in (self.cells[:2], self.cells[2:]):
            ahead = _along(forward, states)
            behind = _along(backward, states[::-1])[::-1]
            states = [torch.cat(pair, dim=1) for pair in zip(ahead, behind, strict=True)]
        heads = [self.head(state) for state in states]
        modifiers = [self.modifier(state) for state in states]
        scores = [[self.score(torch.tanh(head + modifier)) for modifier in modifiers] for head in heads]
        for row in scores:
            for score in row:
                score.item()
        wrong = [scores[i - 1][i] - scores[i // 2][i] for i in range(1, len(scores), 4)]
        return torch.stack(wrong).sum()


def _along(cell: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of an LSTM cell that is stepped along a sequence."""
    h = c = inputs[0].new_zeros(1, 125)
    outputs = []
    for x in inputs:
        h, c = cell(x, (h, c))
        outputs.append(h)
    return outputs


class Liquid(nn.Module):
    """A liquid time-constant network: (batch, time, 16) to the last state of its twelve outputs.

    66 neurons (40 between, 14 of command, 12 of output) that solve a small differential equation in every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        # Weight, middle and slope of sigmoid synapses, mask and reversal, from 16 inputs and from all neurons.
        self.sensory = nn.ParameterList(nn.Parameter(torch.ones(16, 66)) for _ in range(5))
        self.inner = nn.ParameterList(nn.Parameter(torch.ones(66, 66)) for _ in range(5))
        self.capacity, self.leak, self.rest = (nn.Parameter(torch.ones(66)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 66)
        for inputs in x.unbind(dim=1):
            push, pull = _synapses(inputs * self.scale + self.shift, *self.sensory)
            capacity = self.capacity * 6
            for _ in range(6):
                reversed_sum, total = _synapses(state, *self.inner)
                numerator = capacity * state + self.leak * self.rest + reversed_sum + push
                state = numerator / (capacity + self.leak + total + pull + 1e-8)
        return state[:, -12:]


def _synapses(
    x: Tensor, weight: Tensor, middle: Tensor, slope: Tensor, mask: Tensor, reversal: Tensor
) -> tuple[Tensor, Tensor]:
    activation = weight * torch.sigmoid(slope * (x[:, :, None] - middle)) * mask
    return (activation * reversal).sum(dim=1), activation.sum(dim=1)


class FFTNet(nn.Module):
    """A sample (1, 1, 1) and a condition (1, 80, 1) to 256 logits: one step of a vocoder of eleven layers of 256.

    A layer convolves two samples that are a distance apart, of the signal and of the condition where there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = [1024, *(2**i for i in reversed(range(11)))]
        widths = [1, 80, *[256] * 10]
        for i, (size, width) in enumerate(zip(sizes, widths, strict=True)):
            self.register_buffer(f"newer{i}", torch.zeros(1, width, size))
            self.register_buffer(f"older{i}", torch.zeros(1, width, size))
        self.new = nn.ModuleList([nn.Conv1d(width, 256, 1) for width in widths])
        self.old = nn.ModuleList([nn.Conv1d(width, 256, 1) for width in widths])
        self.classify = nn.Linear(256, 256)

    def forward(self, sample: Tensor, condition: Tensor) -> Tensor:
        x = self._layer(0, sample) + self._layer(1, condition)
        for i in range(2, 12):
            x = self._layer(i, x)
        return self.classify(x.transpose(1, 2))

    def _layer(self, i: int, x: Tensor) -> Tensor:
        """Shift the last samples by one, and convolve the oldest and the middle one."""
        newer, older = self.get_buffer(f"newer{i}"), self.get_buffer(f"older{i}")
        older[:, :, :-1] = older[:, :, 1:].clone()
        older[:, :, -1] = newer[:, :, 0]
        newer[:, :, :-1] = newer[:, :, 1:].clone()
        newer[:, :, -1] = x[:, :, 0]
        return self.new[i](newer[:, :, :1]) + self.old[i](older[:, :, :1])


class GraphAttention(nn.Module):
    """A layer of one head over features (nodes, 100) and edges (2, number) or (nodes, nodes)."""

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


def graph_convolution(inputs: int, outputs: int) -> nn.Module:
    """A graph convolution with symmetric normalisation."""
    from torch_geometric.nn import GCNConv

    return GCNConv(inputs, outputs)


class MessagePassing(nn.Module):
    """Gilmer et al.'s network (2017), 64 and 128 wide: atoms (nodes, 39) and bonds (edges, 11) to one value."""

    def __init__(self) -> None:
        from torch_geometric.nn import NNConv, Set2Set

        super().__init__()
        self.project = nn.Sequential(nn.Linear(39, 64), nn.ReLU())
        edge = nn.Sequential(nn.Linear(11, 128), nn.ReLU(), nn.Linear(128, 64 * 64))
        self.messages = NNConv(64, 64, edge, root_weight=False)
        self.update = nn.GRU(64, 64)
        self.readout = Set2Set(64, processing_steps=6, num_layers=3)
        self.predict = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, atoms: Tensor, bonds: Tensor, edges: Tensor) -> Tensor:
        x = self.project(atoms)
        state = x[None]
        for _ in range(6):
            output, state = self.update(F.relu(self.messages(x, edges, bonds))[None], state)
            x = output[0]
        return self.predict(self.readout(x))
