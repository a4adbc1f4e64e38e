"""A graph-based dependency parser: every pair of words of a sentence is scored alone, and each score read at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Words of a sentence: about what newswire has.
WORDS = 24


class SentenceScorer(nn.Module):
    """A sentence (words, 125) through a two-layer bidirectional LSTM of cells to the margin loss of wrong heads.

    The sizes are the parser's defaults: LSTMs of 125, a hidden layer of 100. A quarter of the words get a wrong head.
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


def sentence() -> tuple[Tensor]:
    """The vectors of a sentence's words."""
    return (torch.zeros(WORDS, 125),)
