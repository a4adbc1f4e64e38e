"""Shapes of recurrent layers and cells, and of layers of 8-bit weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import (
    Cut,
    OpWork,
    Shape,
    operand_bytes,
    pieces_of_products,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall

#: Ops inside one time step of a layer.
OPS_IN_TIME_STEP = 8
#: Cores that layers gain from which torch runs op by op, without oneDNN: 64 steps of 32 rows of a GRU
#: take 11.6 ms on one thread, 7.7 on two and 6.2 on 16
#: (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz).
STEP_BY_STEP = 2.0


@dataclass(frozen=True, slots=True)
class Recurrent(Shape):
    """Recurrent layers, or one cell of one."""

    #: Rows of every step's product, or columns of its weights.
    SHARED: ClassVar[tuple[str, ...]] = ("state",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("batch",)

    #: Time steps; 1 of a cell.
    length: float
    #: Sequences.
    batch: float
    #: Elements of the input at one time step, and of the state of one sequence.
    input: float
    hidden: float
    #: Layers x directions.
    stacked: float
    #: Elements of the state of the whole batch, and of all weights.
    state: float
    weights: float
    #: The gradient.
    backward: bool
    #: Rows of all time steps.
    rows: float = 0.0

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        sequence = call.inputs[0]
        cell = "cell" in op.traits
        rows = max(sequence.numel // max(sequence.shape[-1], 1), 1)
        # A cell's states are matrices like its weights, but come before them.
        states = (2 if "onednn" in op.traits else 1) if cell else 0
        matrices = [t for t in call.inputs[1 + states :] if len(t.shape) == 2]
        # A backward of a cell has gradients after the two weights. A layer's packed sequence is a matrix too.
        weights = matrices[:2] if cell else [t for t in matrices if t.shape != sequence.shape]
        hidden = weights[1].shape[-1] if len(weights) > 1 else sequence.shape[-1]
        length = 1 if cell else _length(call)
        batch = max(rows // length, 1)
        return cls(
            length,
            batch,
            sequence.shape[-1],
            hidden,
            max(len(weights) // 2, 1),
            batch * hidden,
            sum(w.numel for w in weights),
            op.backward,
            rows,
        )

    @property
    def flops(self) -> float:
        """All weights for every row, twice that for the gradient."""
        return 2.0 * (2.0 if self.backward else 1.0) * self.rows * self.weights

    @property
    def steps(self) -> float:
        """Time steps of all layers."""
        return self.length * self.stacked

    @property
    def ops_inside(self) -> int:
        return max(int(OPS_IN_TIME_STEP * self.steps), 1)

    def cut(self, work: OpWork) -> Cut:
        steps = max(self.steps, 1.0)
        pieces = pieces_of_products(work.flops / steps)
        if "onednn" in work.row.traits:  # every step of time is a region
            return Cut(pieces, steps, always=True)
        return Cut(min(pieces, STEP_BY_STEP), steps)

    def persistent(self, work: OpWork) -> bool:
        """Whether one kernel runs all time steps of a layer on a GPU, as its weights stay on the SMs.

        Those of small states do, and of larger ones in half precision (``use_rnn_persist_small_h`` and
        ``use_persist_common_heuristics`` in ATen/native/cudnn/RNN.cpp).
        """
        plain = "plain" in work.row.traits
        small = (256 if plain else 128) if self.backward else (384 if plain else 192)
        half = work.dtype.partition("+")[0] in ("float16", "bfloat16")
        whole = self.hidden <= 1024 and self.hidden % 128 == 0 and self.input % 128 == 0
        return self.hidden <= small or (half and self.stacked == 1 and whole)

    def launches(self, work: OpWork) -> float:
        """Some kernels for each layer, and two for each time step where it is not persistent.

        Counted in the calibrations of an H100 and an H200, over 200 layers (calibration/records).
        """
        if self.persistent(work):
            return (9.0 if self.backward else 3.0) * self.stacked
        return 2.1 * self.steps + (6.0 if self.backward else 1.0) * self.stacked


def _length(call: OpCall) -> int:
    """The number of time steps, which the tracer puts last among the arguments."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1


@dataclass(frozen=True, slots=True)
class Quantized(Shape):
    """A layer of 8-bit weights: linear, convolutional or recurrent. It runs on a CPU alone."""

    #: Multiply-adds.
    products: float
    #: Activations that are quantized, and results that are scaled.
    numbers: float
    #: Numbers that pass through gates, in float32.
    gated: float
    #: Elements of the packed weights that are no operands.
    packed: float
    #: Time steps of all layers, each a product of the input and one of the state; 0 of other layers.
    steps: float
    #: Times that all weights are read: time steps, or once.
    turns: float = 1.0

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        data, result = call.inputs[0], call.outputs[0]
        gates = op.number("gates")
        if gates:
            return cls._recurrent(call, op, gates)
        numbers = float(data.numel + result.numel)
        if "convolves" in op.traits:
            walked = data if "transposed" in op.traits else result
            return cls(float(walked.numel * math.prod(call.inputs[1].shape[1:])), numbers, 0.0, 0.0, 0.0)
        width = result.shape[-1]
        return cls(float(data.numel * width), numbers, 0.0, float(data.shape[-1] * width), 0.0)

    @classmethod
    def _recurrent(cls, call: OpCall, op: Op, gates: float) -> Self:
        data, result = call.inputs[0], call.outputs[0]
        # Of packed sequences, the sizes of the batches come before the state.
        state = next((t for t in call.inputs[1:] if t.dtype == data.dtype), data)
        width, hidden = data.shape[-1], state.shape[-1]
        rows = data.numel / max(width, 1)
        stacked = directions = turns = 1.0
        if "cell" not in op.traits:
            stacked, directions = float(state.shape[0]), result.shape[-1] / hidden
            turns = max(rows / state.shape[1], 1.0)
        # The input and the state of every layer and direction; layers but the first read the states of those before.
        read = directions * width + (stacked - directions) * directions * hidden + stacked * hidden
        made = gates * hidden * stacked
        weights = gates * hidden * read
        return cls(rows * weights, rows * (read + 2.0 * made), rows * made, weights, turns * stacked, turns)

    @property
    def flops(self) -> float:
        return 2.0 * self.products

    def traffic(self, call: OpCall) -> float:
        """Operands, results, and the packed weights of a byte each, which a recurrent layer reads in every step."""
        return operand_bytes(call) + self.turns * self.packed
