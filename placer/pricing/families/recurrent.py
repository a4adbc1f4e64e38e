"""Recurrent layers and cells (LSTM, GRU, plain), kept whole, and their gradients."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.sharing import GRAIN, Sharing, cut
from placer.pricing.families.vector_registers import REGISTER, padded
from placer.pricing.work import Work
from placer.tracing import OpCall

#: Ops inside one time step of a layer.
_OPS_IN_TIME_STEP = 8


def _read(call: OpCall) -> Features:
    """FLOPs: 2 x rows x all weights, twice that for the gradient."""
    sequence = call.inputs[0]
    cell = call.op.removesuffix("_backward").endswith("_cell")
    rows = max(sequence.numel // max(sequence.shape[-1], 1), 1)
    # A cell's states are matrices like its weights, but come before them.
    states = (2 if "lstm" in call.op else 1) if cell else 0
    matrices = [t for t in call.inputs[1 + states :] if len(t.shape) == 2]
    # A backward of a cell has gradients after the two weights. A layer's packed sequence is a matrix like its weights.
    weights = matrices[:2] if cell else [t for t in matrices if t.shape != sequence.shape]
    hidden = weights[1].shape[-1] if len(weights) > 1 else sequence.shape[-1]
    length = 1 if cell else _length(call)
    stacked = max(len(weights) // 2, 1)
    backward = call.op.endswith("_backward")
    flops = 2.0 * (2.0 if backward else 1.0) * rows * sum(w.numel for w in weights)
    batch = max(rows // length, 1)
    elements = batch * hidden, sum(w.numel for w in weights)
    return Features(flops, (length, batch, sequence.shape[-1], hidden, stacked, *elements), (float(backward),))


def _length(call: OpCall) -> int:
    """The number of time steps, which the tracer puts last among the arguments."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1


def _steps(work: Work) -> float:
    """Time steps of all layers."""
    return work.sizes[0] * work.sizes[4]


def _gated(work: Work) -> float:
    """Numbers that pass through the gates."""
    return _steps(work) * work.sizes[1] * work.sizes[3]


def _streamed_bytes(work: Work) -> float:
    """Weights of all layers, read again in every time step."""
    return 4.0 * work.sizes[0] * work.sizes[6]


def _padding_flops(work: Work) -> float:
    """Arithmetic on rows that only pad the last tile of a time step's product."""
    return work.flops * (padded(work.sizes[1]) - 1.0)


def _width_padding_flops(work: Work) -> float:
    """Arithmetic on numbers that only pad the last vector register of a state's row."""
    return work.flops * (padded(work.sizes[3]) - 1.0)


def _left_over(work: Work) -> float:
    """Numbers of a gate beyond whole pairs of vector registers: their exponentials are taken one by one.

    A gate is a part of the rows of one product, so each of its rows is a loop of its own (see ``tensor_iterator``).
    LSTM layers run in oneDNN, which has no such rest; plain layers have no gates; and gradients take no exponentials.
    """
    if work.op == "aten::lstm" or "rnn" in work.op or work.op.endswith("_backward"):
        return 0.0
    length, batch, _, hidden, stacked = work.sizes[:5]
    return length * stacked * batch * (hidden % (2 * REGISTER))


def _state_pieces(work: Work) -> float:
    """Pieces that the gates of one time step are cut into."""
    return cut(work.sizes[1] * work.sizes[3], GRAIN)


def _dispatches(work: Work) -> int:
    return max(int(_OPS_IN_TIME_STEP * _steps(work)), 1)


FAMILY = Family(
    name="recurrent",
    ops=aten(
        "lstm lstm_backward gru gru_backward rnn_tanh rnn_tanh_backward rnn_relu rnn_relu_backward lstm_cell "
        "lstm_cell_backward gru_cell gru_cell_backward rnn_tanh_cell rnn_tanh_cell_backward rnn_relu_cell "
        "rnn_relu_cell_backward"
    ),
    sizes={
        "length": "time steps; 1 of a cell",
        "batch": "sequences",
        "input": "elements of the input at one time step",
        "hidden": "elements of the state of one sequence",
        "stacked": "layers x directions",
        "state": "elements of the state of the whole batch",
        "weights": "elements of all weights",
    },
    flags={"backward": "the gradient"},
    read=_read,
    amounts={"steps": _steps, "gated": _gated},
    cpu_amounts={
        "streamed_bytes": _streamed_bytes,
        "padding_flops": _padding_flops,
        "width_padding_flops": _width_padding_flops,
        "left_over": _left_over,
    },
    sharing=Sharing(_state_pieces, {"gated": _gated}, loops=_steps),
    dispatches=_dispatches,
)
