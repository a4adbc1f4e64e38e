"""Attention, recurrent layers, dropout and the encoder's fast path are one call each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from forwards import module
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from placer.tracing import Trace, trace
from placer.tracing.trace_data import spec_of
from placer.workload import make_workload


def ops(traced: Trace, phase: str) -> list[str]:
    return [c.op for c in traced.calls if c.phase == phase and not c.view]


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrent_layer_is_one_call(kind: str, batch_first: bool) -> None:
    layer: Any
    if kind.startswith("rnn"):
        layer = nn.RNN(3, 5, 2, nonlinearity=kind[4:], batch_first=batch_first, bidirectional=True)
    else:
        layer = getattr(nn, kind.upper())(3, 5, 2, batch_first=batch_first, bidirectional=True)
    shape = (4, 7, 3)
    traced = trace(make_workload(layer, shape, mode="train"))
    (call,) = [c for c in traced.calls if c.op == f"aten::{kind}"]
    (back,) = [c for c in traced.calls if c.op == f"aten::{kind}_backward"]
    real, state = layer(torch.randn(shape))
    expected = [real, *(state if isinstance(state, tuple) else [state])]
    assert [o.shape for o in call.outputs] == [tuple(t.shape) for t in expected]
    assert call.args == (True, 2, 0.0, True, True, batch_first, 7 if batch_first else 4)
    assert call.inputs[0].shape == shape
    assert len(call.inputs) == 1 + len(expected) - 1 + 16
    assert back.phase == "backward"
    assert len(back.outputs) == 16  # the gradients of the weights
    assert len([c for c in traced.calls if c.phase == "optimizer"]) == 16
    assert len(ops(traced, "forward")) <= 4  # zeros for the states, and the layer


def test_a_recurrent_layer_on_a_packed_sequence_is_one_call() -> None:
    def forward(self: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        last: torch.Tensor = self.rnn(packed)[1][0]
        return last

    model = module(forward, rnn=nn.LSTM(3, 5, batch_first=True))
    example = (torch.randn(4, 6, 3), torch.tensor([6, 2, 5, 1]))
    traced = trace(make_workload(model, batch=example, mode="train"))
    (call,) = [c for c in traced.calls if c.op == "aten::lstm"]
    assert call.inputs[0].shape == (14, 3)
    assert call.args[-1] == 6


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_is_one_call(cell: Any) -> None:
    traced = trace(make_workload(cell(3, 5), (4, 3), mode="train"))
    (call,) = [c for c in traced.calls if c.op.endswith("_cell")]
    assert {o.shape for o in call.outputs} == {(4, 5)}
    assert [c.op for c in traced.calls if c.op.endswith("_cell_backward")] == [call.op + "_backward"]


def test_attention_keeps_its_arguments_and_layout() -> None:
    attend = module(lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    example = tuple(torch.randn(2, 3, n, 8, requires_grad=True) for n in (5, 5, 5))
    traced = trace(make_workload(attend, batch=example, mode="train"))
    call, back = [c for c in traced.calls if "attention" in c.op]
    assert call.args == (True, False, 0.0, False)
    assert call.outputs == (spec_of(F.scaled_dot_product_attention(*example, is_causal=True)),)
    assert back.op == "aten::scaled_dot_product_attention_backward"
    assert [o.shape for o in back.outputs] == [(2, 3, 5, 8)] * 3


def test_attention_module_traces_through_its_python() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
    attention = module(lambda self, x: self.layer(x, x, x, need_weights=False)[0], layer=layer)
    forward = ops(trace(make_workload(attention, (3, 5, 8), mode="train")), "forward")
    assert forward.count("aten::scaled_dot_product_attention") == 1
    fast = trace(make_workload(attention, (3, 5, 8), mode="infer"))
    assert ops(fast, "forward") == ["aten::_native_multi_head_attention"]


def encoder(**changes: Any) -> nn.Module:
    settings = {"batch_first": True, **changes}
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **settings), 2, enable_nested_tensor=False)


def test_the_encoder_takes_its_fast_path_where_the_real_one_does() -> None:
    fast = ops(trace(make_workload(encoder(), (3, 5, 8), mode="infer")), "forward")
    assert fast == ["aten::_transformer_encoder_layer_fwd"] * 2
    slow = ops(trace(make_workload(encoder(batch_first=False), (3, 5, 8), mode="infer")), "forward")
    assert "aten::scaled_dot_product_attention" in slow


def test_user_hooks_switch_the_fast_path_off() -> None:
    model = encoder()
    model.layers[0].linear1.register_forward_hook(lambda *_: None)
    forward = ops(trace(make_workload(model, (3, 5, 8), mode="infer")), "forward")
    assert forward.count("aten::_transformer_encoder_layer_fwd") == 1
