"""The optimizer's update is one call per parameter tensor that got a gradient, of whole rows where it is sparse."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from forwards import module
from torch import Tensor, nn

from placer.tracing import OpCall, Trace, trace
from placer.workload import make_workload

KINDS = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta")


def updates(traced: Trace) -> list[OpCall]:
    return [c for c in traced.calls if c.phase == "optimizer"]


def traced_with(optimizer: Any, model: nn.Module) -> Trace:
    return trace(make_workload(model, (5, 4), mode="train", optimizer=optimizer))


@pytest.mark.parametrize(
    ("name", "settings", "op", "count"),
    [
        *((name, {}, f"optimizer::{name}", 2) for name in KINDS),
        *((name, {"foreach": True}, "aten::_foreach_.*", None) for name in KINDS),
        *((name, {"fused": True}, "aten::_fused_.*", 1) for name in ("SGD", "Adam", "AdamW", "Adagrad")),
        ("SGD", {"momentum": 0.9}, "aten::mul_", 2),
        ("SGD", {"momentum": 0.9, "nesterov": True}, "aten::add", 2),
        ("SGD", {"weight_decay": 0.1}, "aten::add", 2),
        ("Adam", {"amsgrad": True}, "aten::maximum", 2),
        ("RMSprop", {"centered": True}, "aten::lerp_", 2),
        ("RMSprop", {"momentum": 0.9, "centered": True}, "aten::lerp_", 2),
    ],
)
def test_an_update_is_traced_as_the_cpu_runs_it(
    name: str, settings: dict[str, Any], op: str, count: int | None
) -> None:
    """On accelerators, where all forms are measured, it is one call per tensor; its state is that of the real one."""
    model = nn.Linear(4, 20)
    optimizer = getattr(torch.optim, name)(model.parameters(), **settings)
    found = traced_with(optimizer, model)
    ops = [c.op for c in updates(found) if re.fullmatch(op, c.op)]
    assert len(ops) == (count or len(ops)) > 0
    on_cuda = found.on("cuda")
    assert (found.real, found.optimizer) == (False, name)
    assert [c.op for c in updates(on_cuda)] == [f"optimizer::{name}"] * 2
    if not settings:
        assert updates(traced_with(name.lower(), model)) == updates(found) == updates(on_cuda)
    elif not op.startswith("aten::_f"):
        assert on_cuda.python_calls < found.python_calls
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    state = [t for values in optimizer.state.values() for t in values.values() if torch.is_tensor(t)]
    # scalars (steps, products of betas) are a few bytes per parameter either way
    state_bytes = pytest.approx(sum(t.numel() * t.element_size() for t in state), abs=16)
    assert (found.optimizer_state_bytes, on_cuda.optimizer_state_bytes) == (state_bytes, state_bytes)


def test_only_parameters_of_the_optimizer_with_a_gradient_are_updated() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([*model[0].parameters(), nn.Parameter(torch.zeros(100))], lr=0.1)
    assert [(c.layer, c.inputs[0].shape) for c in updates(traced_with(optimizer, model))] == [("0", (8, 4))]


class Sign(torch.optim.Optimizer):
    """Not in torch.optim: traced op by op."""

    def __init__(self, parameters: Any, broken: bool = False) -> None:
        super().__init__(parameters, {"lr": 0.1, "broken": broken})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["broken"]:
                    raise ValueError("no gradient worth the name")
                state = self.state[parameter]
                state.setdefault("momentum", torch.zeros_like(parameter)).lerp_(parameter.grad, 0.1)
                parameter.add_(state["momentum"].sign(), alpha=-group["lr"])


def test_an_optimizer_of_the_users_own_is_traced_op_by_op() -> None:
    model = nn.Linear(4, 2)
    optimizer = Sign(model.parameters())
    weight = model.weight.detach().clone()
    traced = traced_with(optimizer, model)
    ops = [c.op for c in updates(traced)]
    assert ops == ["aten::zeros_like", "aten::lerp_", "aten::sign", "aten::add_"] * 2
    assert traced.optimizer_state_bytes == 10 * 4
    assert torch.equal(model.weight, weight)
    assert optimizer.state == {}


def test_an_untraceable_optimizer_is_priced_like_adam_and_says_so() -> None:
    model = nn.Linear(4, 2)
    traced = traced_with(Sign(model.parameters(), broken=True), model)
    assert [c.op for c in updates(traced)] == ["optimizer::Sign"] * 2
    assert any("treated like Adam" in note for note in traced.notes)
    assert traced.optimizer_state_bytes == 2 * 10 * 4 + 2 * 4


class Sharpness(torch.optim.Optimizer):
    """Like SAM: goes uphill, evaluates the loss there, and steps by that gradient."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is not None, "needs a closure"
        parameters = self.param_groups[0]["params"]
        for parameter in parameters:
            parameter.add_(parameter.grad)
        with torch.enable_grad():
            closure()
        for parameter in parameters:
            parameter.sub_(parameter.grad)
        self.base.step()


@pytest.mark.parametrize("reads", [False, True], ids=["without values", "real"])
def test_a_step_that_needs_a_closure_evaluates_the_model_again(reads: bool) -> None:
    class Net(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = super().forward(x)
            if reads:
                float(result.sum())
            return result

    model = Net(4, 2)
    once, twice = (traced_with(kind(model.parameters()), model) for kind in (torch.optim.SGD, Sharpness))
    assert twice.real == reads
    assert not any("Adam" in note for note in twice.notes)
    for phase in ("forward", "loss", "backward"):
        calls = [[c.op for c in found.calls if c.phase == phase] for found in (once, twice)]
        assert calls[1] == 2 * calls[0]
    assert (twice.autograd_nodes, twice.module_calls) == (2 * once.autograd_nodes, 2 * once.module_calls)
    assert twice.python_calls > 2 * once.python_calls > 0
    assert [c.op for c in updates(twice)] == ["aten::add_"] * 2 + ["aten::sub_"] * 2 + ["optimizer::SGD"] * 2
    assert twice.optimizer == "Sharpness"


ROWS, WIDTH, PICKED = 1000, 8, 32


def words(kind: Any, *, reads: bool) -> nn.Module:
    def forward(self: Any, rows: Tensor) -> Tensor:
        result: Tensor = self.head(self.words(rows).flatten(1))
        if reads:
            float(result.sum())
        return result

    return module(forward, words=kind(ROWS, WIDTH, sparse=True), head=nn.Linear(WIDTH, 2))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("reads", [False, True])
def test_a_sparse_gradient_is_its_rows(kind: Any, reads: bool) -> None:
    batch = torch.randint(0, ROWS, (PICKED, 1))
    found = trace(make_workload(words(kind, reads=reads), batch=batch, optimizer="sgd"))
    assert found.notes if reads else not found.notes
    made = [call for call in found.calls if call.phase == "backward" and call.layer == "words" and not call.view]
    assert all(spec.shape[0] == PICKED for call in made for spec in call.outputs)
    (update, *_) = [call for call in found.calls if call.phase == "optimizer"]
    assert (update.op, update.inputs[0].shape) == ("optimizer::SGD", (PICKED, WIDTH))


def test_it_takes_no_memory_of_the_tables_size_and_its_state_does() -> None:
    model = nn.Sequential(nn.Embedding(ROWS, WIDTH, sparse=True), nn.Flatten())
    optimizer = torch.optim.SparseAdam(model.parameters())
    found = trace(make_workload(model, batch=torch.zeros(PICKED, 1, dtype=torch.int64), optimizer=optimizer))
    table = ROWS * WIDTH * 4
    assert found.sparse_gradients == (0,)
    assert found.optimizer_state_bytes == pytest.approx(2 * table, rel=0.01)
    assert found.peak_bytes == pytest.approx(3 * table, rel=0.1)
