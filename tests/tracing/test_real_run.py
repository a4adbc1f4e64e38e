"""Steps that read values are traced by a real run, with the trace of meta tensors where both work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.errors import TraceError
from placer.tracing import Trace, trace
from placer.workload import make_workload


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


@pytest.mark.parametrize("reads", [False, True])
def test_lazy_layers_get_their_shapes(reads: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.LazyLinear(3))
    found = trace(make_workload(Reading(model) if reads else model, (4, 8), mode="train"))
    assert found.real == reads
    assert [p.shape for p in found.parameters] == [(6, 8), (6,), (3, 6), (3,)]
    plain = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 3))
    assert reads or found == trace(make_workload(plain, (4, 8), mode="train"))


def on_meta_and_for_real(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Trace, Trace]:
    reading = Reading(model)
    real = trace(make_workload(reading, *args, **kwargs))
    reading.reads = False
    return trace(make_workload(reading, *args, **kwargs)), real


def without_the_look(traced: Trace) -> Trace:
    """The look is a sum and a read: two calls and a sync."""
    assert [c.op for c in traced.calls[:2]] == ["aten::sum", "aten::_local_scalar_dense"]
    return dataclasses.replace(traced, calls=traced.calls[2:], syncs=traced.syncs - 1, notes=traced.notes[1:])


def mixed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 64, 5),
        nn.Mish(),
        nn.LogSoftmax(1),
    )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)), (16, 4), {}),
    "cnn": (mixed, (4, 3, 16, 16), {}),
    "lstm": (lambda: nn.LSTM(4, 8, 2, batch_first=True, dropout=0.1, bidirectional=True), (3, 7, 4), {}),
    "gru": (lambda: nn.GRU(4, 8), (3, 7, 4), {}),
    "cell": (lambda: nn.LSTMCell(4, 8), (3, 4), {}),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (3, 7, 16), {}),
    "attention": (lambda: nn.MultiheadAttention(16, 2, batch_first=True), [(3, 7, 16)] * 3, {}),
    "autocast": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (3, 7, 16), {"autocast": True}),
    "conv1d": (Conv1dRegressor, (32, 84), {}),
    "pool1d": (lambda: nn.Sequential(nn.Conv1d(1, 8, 3), nn.ELU(), nn.MaxPool1d(2)), (16, 1, 84), {}),
}


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_real_run_gives_the_trace_of_meta_tensors(name: str, mode: str) -> None:
    build, shape, settings = NETWORKS[name]
    meta, real = on_meta_and_for_real(build(), shape, mode=mode, **settings)
    assert meta.notes == ()
    real = without_the_look(real)
    for field in dataclasses.fields(Trace):
        # A scalar's four bytes; and fused ops are entered in another way, through other functions.
        if field.name not in ("peak_activation_bytes", "python_calls", "evicted_calls", "real"):
            assert getattr(real, field.name) == getattr(meta, field.name), field.name
    assert (meta.real, real.real) == (False, True)
    assert meta.python_calls > 0
    assert real.python_calls == pytest.approx(meta.python_calls, rel=0.5, abs=40)
    assert real.evicted_calls == pytest.approx(meta.evicted_calls, rel=0.5, abs=40)
    assert 0 <= real.peak_activation_bytes - meta.peak_activation_bytes <= 4


def test_gradients_through_fused_ops_are_real() -> None:
    class Checks(nn.Module):
        """Reads gradients of a fused op, as a line search would."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 5)
            self.found: list[float] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_()
            out, _ = self.layer(x)
            found = F.scaled_dot_product_attention(out, out, out).square().sum()
            (grad,) = torch.autograd.grad(found, x, create_graph=False)
            raise ArithmeticError(repr(round(grad.sum().item(), 4)))

    torch.manual_seed(3)
    model, x = Checks(), torch.randn(4, 2, 3)
    with pytest.raises(ArithmeticError) as plain:
        model(x)
    with pytest.raises(TraceError, match="ArithmeticError") as traced:
        trace(make_workload(model, batch=x, mode="train"))
    assert str(plain.value) in str(traced.value)


@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: x.tolist()])
def test_a_read_is_a_sync_and_the_notes_name_the_layer(read: Any) -> None:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            read(x)
            return x

    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Reads()))
    traced = trace(make_workload(model, (3, 4), mode="infer"))
    assert traced.syncs == 1
    assert "layer '1.0'" in traced.notes[0]
    assert traced.notes[0].endswith("hold for inputs like the random ones drawn for it")


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
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_a_model_without_values_cannot_run() -> None:
    with torch.device("meta"):
        model = Reading(nn.Linear(4, 4))
    with pytest.raises(TraceError, match="a model on the meta device has none"):
        trace(make_workload(model, (3, 4), mode="infer"))
