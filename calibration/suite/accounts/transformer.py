"""BERT base with a classifier of sentences, as Hugging Face computed it in 2022."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point

_WIDTH, _HEADS, _LAYERS = 768, 12, 12
_VOCABULARY, _POSITIONS = 30_522, 512
#: What the server pads every request to.
_LENGTH = 150


class Bert(nn.Module):
    """Token ids and a mask, both (batch, time), to two logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_POSITIONS, _WIDTH)
        self.kinds = nn.Embedding(2, _WIDTH)
        self.normalise = nn.LayerNorm(_WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(_LAYERS)])
        self.pool = nn.Linear(_WIDTH, _WIDTH)
        self.classify = nn.Linear(_WIDTH, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.kinds(torch.zeros_like(tokens)) + self.positions(places)
        x = self.normalise(x)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, hidden)
        out: Tensor = self.classify(torch.tanh(self.pool(x[:, 0])))
        return out


class Layer(nn.Module):
    """Self-attention in single operators and a network of two linear layers, each normalised after its sum."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.mix = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        query, key, value = (_heads(project(x)) for project in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / (_WIDTH // _HEADS) ** 0.5 + hidden
        attended = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(x.shape)
        x = self.first(self.mix(attended) + x)
        out: Tensor = self.second(self.narrow(F.gelu(self.wide(x))) + x)
        return out


def _heads(x: Tensor) -> Tensor:
    """(batch, time, width) to (batch, heads, time, width of a head)."""
    return x.view(*x.shape[:2], _HEADS, -1).transpose(1, 2)


def _request() -> tuple[Tensor, Tensor]:
    return torch.zeros(1, _LENGTH, dtype=torch.int64), torch.ones(1, _LENGTH, dtype=torch.int64)


_SERVED = (Part(Bert, _request, "infer"),)

ACCOUNTS = (
    Account(
        "kevinyang8-bert", "Tesla T4", hosts.XEON_PLATINUM_8124M, "",
        "A request to TorchServe, half of whose requests are faster: tokenising, the server and its processes are not"
        " rebuilt. One sentence, padded to 150 tokens.",
        tuple(Point(at, _SERVED, gpu_host=hosts.XEON_8259CL) for at in ("run 1", "run 2")),
    ),
)  # fmt: skip
