"""Recurrent networks of published benchmarks, written after their descriptions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.published.networks.not_built import NotBuilt
from placer.calibration.published.steps import PublishedStep


class FineGrainedCell(nn.Module):
    """An LSTM cell with a weight, and a call, for each gate."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input = nn.ParameterList([torch.empty(inputs, hidden) for _ in range(4)])
        self.from_hidden = nn.ParameterList([torch.empty(hidden, hidden) for _ in range(4)])
        self.bias = nn.ParameterList([torch.empty(hidden) for _ in range(4)])

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The next hidden state and cell."""
        hidden, cell = state
        gates = [
            x.mm(w) + hidden.mm(u) + b for w, u, b in zip(self.from_input, self.from_hidden, self.bias, strict=True)
        ]
        entry, forget, output = (torch.sigmoid(gates[i]) for i in (0, 1, 3))
        cell = forget.mul(cell) + entry.mul(torch.tanh(gates[2]))
        return output.mul(torch.tanh(cell)), cell


class LanguageModel(nn.Module):
    """Embedding, three recurrent layers and a projection to the vocabulary, as in Carrot's benchmark.

    ``cell`` is run step by step, layer after layer; None: ``nn.LSTM`` runs all layers.
    """

    VOCABULARY, EMBEDDING, HIDDEN, LAYERS = 10_001, 128, 256, 3

    def __init__(self, cell: type[nn.Module] | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.EMBEDDING)
        self.linear = nn.Linear(self.HIDDEN, self.VOCABULARY)
        sizes = (self.EMBEDDING, *[self.HIDDEN] * (self.LAYERS - 1))
        self.whole = None if cell else nn.LSTM(self.EMBEDDING, self.HIDDEN, self.LAYERS, batch_first=True)
        self.cells = nn.ModuleList([cell(size, self.HIDDEN) for size in sizes] if cell else [])

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, tokens, vocabulary)."""
        x = self.embedding(tokens)
        if self.whole is not None:
            x, _ = self.whole(x)
        for cell in self.cells:
            hidden = state = x.new_zeros(x.shape[0], self.HIDDEN)
            outputs, states = [], []
            for time in range(x.shape[1]):
                hidden, state = cell(x[:, time, :], (hidden, state))
                outputs.append(hidden)
                states.append(state)
            x = torch.stack(outputs, dim=1)
            torch.stack(states)
        logits: Tensor = self.linear(x)
        return logits


class Classifier(nn.Module):
    """A recurrent network and a layer on its last output, as in stefbraun's benchmarks. Input (time, batch, features).

    ``cell``: run step by step instead of ``network``.
    """

    def __init__(self, network: nn.Module | None, width: int, classes: int, cell: nn.Module | None = None) -> None:
        super().__init__()
        self.network, self.cell = network, cell
        self.width = width
        self.linear = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, classes)."""
        if self.network is not None:
            output, _ = self.network(x)
            last = output[-1]
        else:
            assert self.cell is not None
            last = state = x.new_zeros(x.shape[1], self.width)
            for time in range(x.shape[0]):
                last, state = self.cell(x[time], (last, state))
        return F.relu(self.linear(last))


def model(step: PublishedStep) -> tuple[nn.Module, tuple[tuple[Tensor, ...], dict[str, Tensor]]]:
    """The network of ``step`` and its example input. Raises NotBuilt for a description that is not known."""
    name = step.network
    if "LSTM LM" in name:
        cell = FineGrainedCell if "fine-grained" in name else nn.LSTMCell if "LSTMCell" in name else None
        return LanguageModel(cell), ((torch.zeros(step.input, dtype=torch.int64),), {})
    features = step.input[-1]
    if name.startswith("4x320 bidirectional LSTM"):
        built = Classifier(nn.LSTM(features, 320, 4, bidirectional=True), 640, 25)
    elif "custom LSTMCell" in name:
        built = Classifier(None, 320, 25, FineGrainedCell(features, 320))
    elif "GRU" in name:
        built = Classifier(nn.GRU(features, 320), 320, 25)
    elif "1x320 LSTM" in name:
        built = Classifier(nn.LSTM(features, 320), 320, 10)
    else:
        raise NotBuilt(f"no builder for {name!r}")
    return built, ((torch.empty(step.input),), {})
