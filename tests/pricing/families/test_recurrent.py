"""Recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from described import feature, traced
from torch import nn

from placer.pricing.describe import amounts, ops_inside

LAYERS: dict[str, tuple[Callable[[], nn.Module], str, int]] = {
    "lstm": (lambda: nn.LSTM(5, 7), "lstm", 28 * 5 + 28 * 7),
    "lstm, two layers": (lambda: nn.LSTM(5, 7, 2), "lstm", 28 * 5 + 28 * 7 + 2 * 28 * 7),
    "gru": (lambda: nn.GRU(5, 7), "gru", 21 * 5 + 21 * 7),
    "gru, both ways": (lambda: nn.GRU(5, 7, bidirectional=True), "gru", 2 * (21 * 5 + 21 * 7)),
    "rnn": (lambda: nn.RNN(5, 7), "rnn_tanh", 7 * 5 + 7 * 7),
}


CELLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lstm_cell": (lambda: nn.LSTMCell(5, 7), 28 * 12),
    "gru_cell": (lambda: nn.GRUCell(5, 7), 21 * 12),
    "rnn_tanh_cell": (lambda: nn.RNNCell(5, 7), 7 * 12),
}


@pytest.mark.parametrize(
    ("build", "op", "hidden", "left_over"),
    [
        (nn.GRU, "aten::gru", 32, 0),
        (nn.GRU, "aten::gru", 40, 6 * 4 * 8),
        (nn.GRU, "aten::gru_backward", 40, 0),  # takes no exponentials
        (nn.LSTM, "aten::lstm", 40, 0),  # is oneDNN's
        (nn.RNN, "aten::rnn_tanh", 40, 0),  # has no gates
        (nn.GRUCell, "aten::gru_cell", 40, 4 * 8),
        (nn.LSTMCell, "aten::lstm_cell", 40, 4 * 8),
    ],
)
def test_rows_of_gates_that_fill_no_pairs_of_registers(
    build: Callable[[int, int], nn.Module], op: str, hidden: int, left_over: int
) -> None:
    shape = (4, 5) if op.endswith("_cell") else (6, 4, 5)
    found = traced(build(5, hidden), op, shape)
    assert amounts(found)["left_over"] == left_over
    assert amounts(found)["width_padding_flops"] == pytest.approx(found.flops * (48 / 40 - 1) if hidden == 40 else 0)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(name: str) -> None:
    build, op, weights = LAYERS[name]
    forward = traced(build(), f"aten::{op}", (3, 4, 5))  # 3 time steps, a batch of 4
    backward = traced(build(), f"aten::{op}_backward", (3, 4, 5))
    assert forward.flops == 2 * 3 * 4 * weights
    assert backward.flops == 2 * forward.flops
    for found, flag in ((forward, 0), (backward, 1)):
        assert found.sizes[:4] == (3, 4, 5, 7)
        assert feature(found, "backward") == flag


@pytest.mark.parametrize("op", CELLS)
@pytest.mark.parametrize("batch", [4, 7, 21, 28], ids="batch {}".format)
def test_recurrent_cells(op: str, batch: int) -> None:
    """Also where the batch makes the input look like a weight (gates x hidden rows)."""
    build, weights = CELLS[op]
    forward = traced(build(), f"aten::{op}", (batch, 5))
    backward = traced(build(), f"aten::{op}_backward", (batch, 5))
    assert forward.flops == 2 * batch * weights
    assert backward.flops == 2 * forward.flops
    assert forward.sizes[:5] == backward.sizes[:5] == (1, batch, 5, 7, 1)


def test_what_layers_are_made_of() -> None:
    """Two layers of 7, over 3 time steps of 4 sequences of 5."""
    found = traced(nn.GRU(5, 7, 2), "aten::gru", (3, 4, 5))
    weights = 21 * (5 + 7) + 21 * (7 + 7)
    assert found.sizes[:7] == (3, 4, 5, 7, 2, 4 * 7, weights)
    made = amounts(found)
    assert (made["steps"], made["gated"], made["streamed_bytes"]) == (6, 6 * 4 * 7, 4 * 3 * weights)
    assert made["padding_flops"] == pytest.approx(found.flops * (16 / 4 - 1))
    assert made["left_over"] == 6 * 4 * 7
    assert ops_inside(found) == 8 * 6
    cell = traced(nn.GRUCell(5, 7), "aten::gru_cell", (4, 5))
    assert (amounts(cell)["steps"], ops_inside(cell)) == (1, 8)
