"""Layers of 8-bit weights, which run on a CPU alone: linear ones, convolutions and recurrent ones."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.op_amounts import quantized
from placer.pricing.work import operand_bytes
from placer.tracing import OpCall


def _read_quantized(call: OpCall) -> Features:
    """FLOPs: 2 for each multiply-add."""
    does = quantized(call)
    return Features(2.0 * does.products, (does.products, does.numbers, does.gated, does.packed, does.steps))


def _moved_bytes(call: OpCall) -> float:
    """Operands, results, and the packed weights of a byte each, which a recurrent layer reads in every time step."""
    does = quantized(call)
    return operand_bytes(call) + does.turns * does.packed


#: What an op of this family is called, whatever it does besides: it adds, or ends in a ReLU.
_PREFIXES = ("quantized::linear", "quantized::conv", "quantized::quantized_")

QUANTIZED = Family(
    name="quantized",
    ops=aten(
        "quantized_lstm quantized_gru quantized_lstm_cell quantized_gru_cell quantized_rnn_tanh_cell "
        "quantized_rnn_relu_cell"
    ),
    prefixes=_PREFIXES,
    sizes={
        "products": "multiply-adds",
        "numbers": "activations that are quantized, and results that are scaled",
        "gated": "numbers that pass through gates, in float32",
        "packed": "elements of the packed weights that are no operands",
        "steps": "time steps of all layers",
    },
    read=_read_quantized,
    moved_bytes=_moved_bytes,
)
