"""The recurrent cells that torch asks an accelerator for as one op each, and their gradients, computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(hidden state, cell state, gates); the gates are kept for backward."""
    i, f, g, o = _with_biases(inputs, input_bias, hidden, hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * cell + i * g
    return o * new.tanh(), new, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(
    grad_hidden: Tensor | None, grad_new: Tensor | None, cell: Tensor, new: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of (gates, cell state, bias)."""
    i, f, g, o = gates.chunk(4, 1)
    by_hidden = torch.zeros_like(new) if grad_hidden is None else grad_hidden
    by_new = torch.zeros_like(new) if grad_new is None else grad_new
    by_new = by_new + by_hidden * o * (1 - new.tanh() ** 2)
    result = torch.cat(
        (
            by_new * g * i * (1 - i),
            by_new * cell * f * (1 - f),
            by_new * i * (1 - g**2),
            by_hidden * new.tanh() * o * (1 - o),
        ),
        1,
    )
    return result, by_new * f, result.sum(0) if has_bias else None


def gru_cell(
    inputs: Tensor, hidden: Tensor, state: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(hidden state, what backward needs)."""
    input_r, input_z, input_n = (inputs if input_bias is None else inputs + input_bias).chunk(3, 1)
    hidden_r, hidden_z, hidden_n = (hidden if hidden_bias is None else hidden + hidden_bias).chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (state - n), torch.cat((r, z, n, state, hidden_n), 1)


def gru_cell_backward(grad: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of (input gates, hidden gates, state, input bias, hidden bias)."""
    r, z, n, state, hidden_n = kept.chunk(5, 1)
    by_z = grad * (state - n) * z * (1 - z)
    by_n = grad * (1 - z) * (1 - n**2)
    by_r = by_n * hidden_n * r * (1 - r)
    inputs, hidden = torch.cat((by_r, by_z, by_n), 1), torch.cat((by_r, by_z, by_n * r), 1)
    return inputs, hidden, grad * z, inputs.sum(0) if has_bias else None, hidden.sum(0) if has_bias else None


def _with_biases(inputs: Tensor, input_bias: Tensor | None, hidden: Tensor, hidden_bias: Tensor | None) -> Tensor:
    for bias in (input_bias, hidden_bias):
        inputs = inputs if bias is None else inputs + bias
    return inputs + hidden


#: By the name of torch's op.
FUSED_CELLS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
