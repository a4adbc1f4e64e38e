"""Recurrent networks: fused layers, and loops of cells written in Python."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import cross_entropy, mean_squared


class SequenceModel(nn.Module):
    """A recurrent layer over (batch, time, features) and a linear head on its last step."""

    def __init__(
        self,
        kind: Callable[..., nn.RNNBase],
        features: int,
        hidden: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.recurrent = kind(features, hidden, num_layers=layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), 1)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.recurrent(x)
        out: Tensor = self.head(output[:, -1])
        return out


class TextClassifier(nn.Module):
    """Token ids (batch, time) through an embedding and a two-layer bidirectional LSTM to 4 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5000, 64)
        self.recurrent = nn.LSTM(64, 64, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(128, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        output, _ = self.recurrent(self.embed(tokens))
        out: Tensor = self.head(output.mean(dim=1))
        return out


class CellLoop(nn.Module):
    """An LSTM cell stepped in Python, as custom recurrences are written: (batch, time, 16) to (batch, 1)."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(16, hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        c = torch.zeros_like(h)
        for step in x.unbind(dim=1):
            h, c = self.cell(step, (h, c))
        out: Tensor = self.head(h)
        return out


def sequences(time: int, features: int) -> Callable[[int], Tensor]:
    """Examples of shape (batch, time, features)."""
    return lambda n: torch.randn(n, time, features)


ENTRIES = (
    Entry(
        "lstm", "recurrent", lambda: SequenceModel(nn.LSTM, 8, 64), sequences(30, 8), (1, 32, 256), loss=mean_squared,
        suites=frozenset({"quick", "full"}),
    ),
    Entry(
        "gru", "recurrent", lambda: SequenceModel(nn.GRU, 32, 128), sequences(20, 32), (8, 128), optimizer="adamw",
        loss=mean_squared,
    ),
    Entry(
        "rnn_tanh", "recurrent", lambda: SequenceModel(nn.RNN, 4, 32), sequences(40, 4), (1, 64), optimizer="rmsprop",
        loss=mean_squared,
    ),
    Entry(
        "lstm_2_layers_50_steps", "recurrent", lambda: SequenceModel(nn.LSTM, 16, 128, 2), sequences(50, 16), (1, 32),
        loss=mean_squared,
    ),
    Entry(
        "gru_bidirectional", "recurrent", lambda: SequenceModel(nn.GRU, 24, 64, bidirectional=True), sequences(25, 24),
        (4, 64), loss=mean_squared,
    ),
    Entry(
        "lstm_text_bidirectional", "recurrent", TextClassifier, lambda n: torch.randint(0, 5000, (n, 40)), (2, 32),
        loss=cross_entropy,
    ),
    Entry("lstm_cell_loop", "recurrent", CellLoop, sequences(20, 16), (1, 128), loss=mean_squared),
)  # fmt: skip
