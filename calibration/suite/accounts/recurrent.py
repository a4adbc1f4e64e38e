"""Recurrent networks: fused layers, loops of cells, and loops of single operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.parser import WORDS, SentenceScorer, sentence
from placer.calibration.suite.accounts.small_cnn import loading
from placer.calibration.suite.accounts.steps import Stays, read_loss
from placer.calibration.suite.entry import Mode
from placer.calibration.suite.losses import cross_entropy, mean_squared
from placer.calibration.suite.reference.supervised import Supervised, own_loss

_VOCABULARY = 10_001


class RowsAsSequence(nn.Module):
    """Images as sequences of rows: (batch, 28, 28) through a two-layer RNN to (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.RNN(28, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.recurrent(x)
        out: Tensor = self.head(output[:, -1])
        return out


class LanguageModel(nn.Module):
    """Three LSTM cells of 256, stepped in Python: tokens (128, 50) to logits (128, 50, 10001).

    ``carried``: each layer carries its state from step to step. The account's TorchScript variant does not: its cells
    start from zeros in every step and its logits come from these zeros, so that no gradient goes through a cell.
    """

    zeros: Tensor

    def __init__(self, *, carried: bool = True) -> None:
        super().__init__()
        self.carried = carried
        self.embed = nn.Embedding(_VOCABULARY, 128)
        self.cells = nn.ModuleList([nn.LSTMCell(128 if i == 0 else 256, 256) for i in range(3)])
        self.register_buffer("zeros", torch.zeros(128, 256))
        self.project = nn.Linear(256, _VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embed(tokens)
        outputs = self._layers(embedded) if self.carried else self._steps(embedded)
        out: Tensor = self.project(outputs)
        return out

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


def by_token(logits: Tensor) -> Tensor:
    """Cross entropy over the tokens of all sentences."""
    return cross_entropy(logits.flatten(0, 1))


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
    """One step of a recurrent layer of 256 for 100 sequences: (1, 100, 1) and a state to the next value."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.recurrent = nn.RNN(8, 256)
        self.head = nn.Linear(256, 1)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        output, _ = self.recurrent(self.embed(x), state)
        out: Tensor = self.head(output)
        return out


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
        out: Tensor = self.head(torch.stack(outputs, dim=1))
        return out


class CellLoop(nn.Module):
    """An LSTM cell of 200, called for each element of (steps, batch, 200)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(200, 200)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[1], 200)
        for step in x.unbind():
            h, c = self.cell(step, (h, c))
        return h


def read_square(output: Tensor) -> Tensor:
    """The mean square, read in every step."""
    return read_loss(output.square().mean())


def _images() -> tuple[Tensor, Tensor]:
    return torch.zeros(64, 28, 28), torch.zeros(64, dtype=torch.int64)


def _language(at: str, mode: Mode, *, carried: bool) -> Point:
    def network() -> nn.Module:
        model = LanguageModel(carried=carried)
        return model if mode == "train" else Stays(model)

    part = Part(network, lambda: (torch.zeros(128, 50, dtype=torch.int64),), mode, loss=by_token, data="device")
    return Point(at, (part,))


def _forward(at: str, network: Callable[[], nn.Module], *shape: int, count: float = 1.0) -> Point:
    """A forward of data that is and stays on the device."""
    part = Part(
        lambda: Stays(network()), lambda: (torch.zeros(*shape),), "infer", data="device", count=count
    )  # fmt: skip
    return Point(at, (part,))


ACCOUNTS = (
    Account(
        "harmxn02-rnn-mnist", "RTX 3060 Laptop", hosts.RYZEN_5600H, "",
        "The loader without workers (its tensor operators are rebuilt, not its Python time and the opening of images),"
        " copies, reading the loss.",
        (
            Point(
                "3 epochs",
                (
                    loading(64, 60_000, normalised=True),
                    Part(
                        lambda: Supervised(RowsAsSequence(), nn.CrossEntropyLoss()), _images, "train", loss=read_loss,
                        count=60_000 / 64,
                    ),
                ),
            ),
        ),
    ),
    Account(
        "carrot-rnnlm-lstmcell", "RTX 2080 Ti", hosts.HASWELL_6_CORE, "",
        "Fifty batches that are on the device, without waiting for the GPU at the end; the forwards record gradients."
        " The TorchScript rows are priced as the same operators in eager mode: its compiler fuses them on the GPU.",
        (
            _language("train eager", "train", carried=True), _language("train TorchScript", "train", carried=False),
            _language("fwd eager", "infer", carried=True), _language("fwd TorchScript", "infer", carried=False),
        ),
    ),
    Account(
        "pytorch-1088-handrnn", "GTX 950M", hosts.DESKTOP_2017,
        "GTX 950M for a Quadro K620: the same chip and memory, 640 cores for 384; i7-6700K, as none is named",
        "The loop; NumPy on the CPU. Nothing waits for the GPU: up to a thousand iterations only their issue is timed.",
        tuple(
            _forward(at, Iterated, 1000, count=count)
            for at, count in (("100 it", 1.0), ("1e3", 10.0), ("1e4", 100.0), ("1e5", 1000.0))
        ),
        "At a hundred iterations the account times the issue of the kernels, not the kernels.",
    ),
    Account(
        "so-6411220-colab-rnn", "Tesla T4", hosts.COLAB,
        "Tesla T4; a plain recurrent layer over one step of 100 sequences, as the shapes of its state say",
        "The loss is read in every step; clipping the gradients is not rebuilt. The data is on the device.",
        (
            Point(
                "it/s",
                (
                    Part(
                        NextValue, lambda: (torch.zeros(1, 100, 1), torch.zeros(1, 100, 256)), "train",
                        loss=read_square, data="device",
                    ),
                ),
            ),
        ),
        "placer's CPU takes twice the account's time, most of it in one step of a recurrent layer on one core; its GPU"
        " seven tenths, as clipping is missing.",
    ),
    Account(
        "keras-5242-lstm", "GTX 1060 6GB", hosts.I7_2600K, "",
        "An epoch of one sequence of 50,000 steps in Theano, whose scan runs each operator of each step; priced as 100"
        " pieces of 500 steps.",
        (
            Point(
                "epoch",
                (
                    Part(
                        ScannedLSTM, lambda: (torch.zeros(1, 500, 3),), "train", loss=mean_squared,
                        optimizer="rmsprop", data="device", count=100.0,
                    ),
                ),
            ),
        ),
    ),
    Account(
        "bist-parser-21", "GTX 1080", hosts.DESKTOP_2017,
        f"GTX 1080 and i7-6700K: neither is named (2018); sentences of {WORDS} words",
        "An epoch of the graph-based parser in DyNet; choosing the tree and the labels' scores are not rebuilt.",
        (
            Point(
                "500 sent. (approx.)", (Part(SentenceScorer, sentence, "train", loss=own_loss, count=500.0),)
            ),
        ),
    ),
    Account(
        "himkt-lstm", "GTX 1080", hosts.DESKTOP_2017, "GTX 1080 and i7-6700K: neither is named (2018)",
        "The mean of ten calls of Chainer, the first with its start-up, none waiting for the GPU at the end; NumPy on"
        " the CPU.",
        (
            _forward("chainer LSTM", CellLoop, 32, 30, 200),
            _forward("NStepLSTM", lambda: nn.LSTM(200, 200), 30, 32, 200),
        ),
    ),
)  # fmt: skip
