"""The recorded op calls are those a real step dispatches; a step that reads values is traced by a real run alike."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from forwards import module
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.benchmarks.kinds import Iterated
from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.errors import TraceError
from placer.nest import tensors
from placer.tracing import Trace, trace
from placer.tracing.trace_data import TensorSpec, spec_of
from placer.workload import make_workload

OpOf = tuple[str, tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


class Real(TorchDispatchMode):
    """What the dispatcher sees on the CPU. Autograd's detach calls are there only because ops are intercepted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpOf] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = tuple(spec_of(t) for t in tensors([args, kwargs or {}]))
        result = func(*args, **(kwargs or {}))
        outputs = tuple(spec_of(t) for t in tensors([result]))
        name = func._schema.name
        if name != "aten::detach":
            self.calls.append((name, inputs, outputs))
        return result


def dispatched(model: nn.Module, shape: tuple[int, ...], mode: str) -> list[OpOf]:
    model.train(mode == "train")
    data = torch.randn(shape)
    with Real() as real, torch.set_grad_enabled(mode == "train"):
        output = model(data)
        if mode == "train":
            output.sum().backward()
    return real.calls


class Reading(nn.Module):
    """Whatever it wraps, after a look at a value: no meta tensor can follow."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.reads = True

    def forward(self, *inputs: Any) -> Any:
        if self.reads:
            inputs[0].sum().item()
        return self.inner(*inputs)


def elementwise(self: Any, x: Tensor) -> Tensor:
    """Operands that are broadcast, transposed, expanded, scalars, and of several dtypes."""
    square = x[:, : len(x)]
    turned = F.silu(square.t()) * 2.5 + square
    masked = torch.where(turned > 0, turned, torch.tensor(0.0)) / torch.tensor(3)
    counted = (x > 0).sum(0) / 2
    return torch.atan2(masked, turned[0]).sum() + F.elu(x.t() + counted[:, None]).sum()


def channels_last(self: Any, x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.Mish(),
        nn.LogSoftmax(1),
    )


def strided() -> nn.Module:
    layer = nn.Conv2d(6, 4, (3, 2), (2, 1), (1, 0), (1, 2), groups=2)
    return nn.Sequential(module(channels_last), layer, nn.BatchNorm2d(4), nn.GELU(), nn.Hardswish())


def norms() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.Softmax(-1), nn.PReLU(), nn.Linear(12, 2))


def solver_that_reads_its_time() -> nn.Module:
    return Iterated(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)), 4, 2, stacked=False, clocked=True)


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


#: Networks, what they take, and settings of their steps; those whose ops the dispatcher sees one by one come first.
PLAIN: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any]]] = {
    "channels last": (strided, (2, 6, 9, 8), {}),
    "elementwise": (lambda: nn.Sequential(nn.Linear(5, 7), module(elementwise)), (4, 5), {}),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Tanh()), (16, 4), {}),
    "cnn": (cnn, (4, 3, 16, 16), {}),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(1, 8, 3), nn.ELU(), nn.ConvTranspose1d(8, 4, 4, 2)), (16, 1, 84), {}),
    "norms": (norms, (3, 5, 12), {}),
    "solver that reads its time": (solver_that_reads_its_time, (5, 3), {}),
}
FUSED: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any]]] = {
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3)), (16, 4), {}),
    "lstm": (lambda: nn.LSTM(4, 8, 2, batch_first=True, dropout=0.1, bidirectional=True), (3, 7, 4), {}),
    "gru": (lambda: nn.GRU(4, 8), (3, 7, 4), {}),
    "cell": (lambda: nn.LSTMCell(4, 8), (3, 4), {}),
    "transformer": (transformer, (3, 7, 16), {}),
    "attention": (lambda: nn.MultiheadAttention(16, 2, batch_first=True), [(3, 7, 16)] * 3, {}),
    "autocast": (transformer, (3, 7, 16), {"autocast": True}),
    "regressor": (Conv1dRegressor, (32, 84), {}),
    "pool1d": (lambda: nn.Sequential(nn.Conv1d(1, 8, 3), nn.ELU(), nn.MaxPool1d(2)), (16, 1, 84), {}),
}


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", [*PLAIN, *FUSED])
def test_a_trace_holds_what_a_real_step_dispatches_and_a_real_run_gives_the_same(name: str, mode: str) -> None:
    build, shape, settings = (PLAIN | FUSED)[name]
    model = Reading(build())
    real = trace(make_workload(model, shape, mode=mode, **settings))
    model.reads = False
    meta = trace(make_workload(model, shape, mode=mode, **settings))
    assert (meta.notes, meta.real, real.real) == ((), False, True)
    # The look is a sum and a read: two calls and a sync.
    assert [c.op for c in real.calls[:2]] == ["aten::sum", "aten::_local_scalar_dense"]
    rest = dataclasses.replace(real, calls=real.calls[2:], syncs=real.syncs - 1, notes=real.notes[1:])
    for field in dataclasses.fields(Trace):
        # A scalar's four bytes; and fused ops are entered in another way, through other functions.
        if field.name not in ("peak_activation_bytes", "python_calls", "evicted_calls", "real"):
            assert getattr(rest, field.name) == getattr(meta, field.name), field.name
    assert meta.python_calls > 0
    assert real.python_calls == pytest.approx(meta.python_calls, rel=0.5, abs=40)
    assert real.evicted_calls == pytest.approx(meta.evicted_calls, rel=0.5, abs=40)
    assert 0 <= real.peak_activation_bytes - meta.peak_activation_bytes <= 4
    if name in PLAIN:
        calls = [(c.op, c.inputs, c.outputs) for c in meta.calls if c.phase != "optimizer"]
        assert calls == dispatched(model, shape, mode)


def test_a_real_step_with_attention_differs_only_in_the_attention_kernel() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    )
    traced = trace(make_workload(model, (3, 7, 16), mode="train"))
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    theirs = Counter(name for name, *_ in dispatched(model, (3, 7, 16), "train"))
    mine = Counter(c.op for c in traced.calls if c.phase != "optimizer")
    assert mine.pop("aten::scaled_dot_product_attention") == theirs.pop(kernel) == 2
    assert mine.pop("aten::scaled_dot_product_attention_backward") == theirs.pop(kernel + "_backward") == 2
    assert mine == theirs


@pytest.mark.parametrize("reads", [False, True])
def test_lazy_layers_get_their_shapes(reads: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.LazyLinear(3))
    found = trace(make_workload(Reading(model) if reads else model, (4, 8), mode="train"))
    assert found.real == reads
    assert [p.shape for p in found.parameters] == [(6, 8), (6,), (3, 6), (3,)]
    plain = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 3))
    assert reads or found == trace(make_workload(plain, (4, 8), mode="train"))


class Changing(nn.Module):
    """Its forward lets a cache grow, and a layer go."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(0, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.cache = torch.cat([self.cache, x.detach()])
        result: Tensor = self.second(self.first(x))
        del self.second
        return result


def test_parameters_and_buffers_are_those_before_the_step() -> None:
    found = trace(make_workload(Changing(), (4, 8), mode="train"))
    assert [p.shape for p in found.parameters] == [(8, 8), (8,), (8, 8), (8,)]
    assert [b.shape for b in found.buffers] == [(0, 8)]


def test_gradients_through_fused_ops_are_real() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        """Reads gradients of a fused op, as a line search would."""
        x = x.detach().requires_grad_()
        out, _ = self.layer(x)
        found = F.scaled_dot_product_attention(out, out, out).square().sum()
        (grad,) = torch.autograd.grad(found, x, create_graph=False)
        raise ArithmeticError(repr(round(grad.sum().item(), 4)))

    model, x = module(forward, layer=nn.LSTM(3, 5)), torch.randn(4, 2, 3)
    with pytest.raises(ArithmeticError) as plain:
        model(x)
    with pytest.raises(TraceError, match="ArithmeticError") as traced:
        trace(make_workload(model, batch=x, mode="train"))
    assert str(plain.value) in str(traced.value)


@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: x.tolist()])
def test_a_read_is_a_sync_and_the_notes_name_the_layer(read: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(module(lambda self, x: (read(x), x)[1])))
    traced = trace(make_workload(model, (3, 4), mode="infer"))
    assert traced.syncs == 1
    assert "layer '1.0'" in traced.notes[0]
    assert traced.notes[0].endswith("hold for inputs like the random ones drawn for it")
    with torch.device("meta"):
        model = Reading(nn.Linear(4, 4))
    with pytest.raises(TraceError, match=r"reads a tensor's value .*; a model on the meta device has no values"):
        trace(make_workload(model, (3, 4), mode="infer"))


def test_a_step_that_torch_refuses_is_refused_with_its_reason_also_where_no_run_is_possible() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with pytest.raises(TraceError, match="more than 1 value per channel"):
        trace(make_workload(model, (1, 4), mode="train"))


@pytest.mark.parametrize("how", ["trace", "inside"])
def test_torchscript_runs_for_real(how: str) -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model: nn.Module = torch.jit.script(plain) if how != "trace" else torch.jit.trace(plain, torch.ones(3, 4))
    if how == "inside":
        model = nn.Sequential(nn.Linear(4, 4), model)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    traced = trace(make_workload(model, (3, 4), mode="train", optimizer=optimizer))
    assert sum(c.op == "aten::addmm" for c in traced.calls) == len(before) // 2
    assert sum(c.op == "optimizer::SGD" for c in traced.calls) == len(before)
    assert "TorchScript" in traced.notes[0]


PARTS = 40


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PARTS))])
def test_no_op_of_torchs_own_database_is_refused(part: int) -> None:
    script = Path(__file__).parents[1] / "op_database.py"
    command = [sys.executable, str(script), "trace", str(part), str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["refused"] == {}
    assert found["traced"] > 0.9 * found["ops"]


# --- layers that torch runs as one op ---------------------------------------------------------------------------------


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
        return self.rnn(packed)[1][0]

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
