"""The optimizer's update is one call per parameter tensor that got a gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from placer.tracing import OpCall, Trace, trace
from placer.workload import make_workload


def updates(traced: Trace) -> list[OpCall]:
    return [c for c in traced.calls if c.phase == "optimizer"]


def traced_with(optimizer: Any, model: nn.Module | None = None) -> Trace:
    model = model or nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return trace(make_workload(model, (5, 4), mode="train", optimizer=optimizer))


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta"])
def test_names_and_instances_agree(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    instance = getattr(torch.optim, name)(model.parameters())
    by_name, by_instance = traced_with(name.lower(), model), traced_with(instance, model)
    assert by_name.optimizer == by_instance.optimizer == name
    assert [c.op for c in updates(by_name)] == [f"optimizer::{name}"] * 4
    assert [(c.inputs, c.layer, c.args) for c in updates(by_name)] == [
        (c.inputs, c.layer, c.args) for c in updates(by_instance)
    ]
    assert by_name.optimizer_state_bytes == by_instance.optimizer_state_bytes


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adam", {}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("RMSprop", {}),
        ("RMSprop", {"momentum": 0.9, "centered": True}),
        ("Adagrad", {}),
        ("Adamax", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Adadelta", {}),
        ("Rprop", {}),
    ],
)
def test_state_bytes_are_those_of_the_real_optimizer(name: str, settings: dict[str, Any]) -> None:
    model = nn.Linear(30, 20)
    optimizer = getattr(torch.optim, name)(model.parameters(), **settings)
    predicted = trace(make_workload(model, (5, 30), mode="train", optimizer=optimizer)).optimizer_state_bytes
    model(torch.randn(5, 30)).sum().backward()
    optimizer.step()
    tensors = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    # scalars (steps, products of betas) are a few bytes per parameter either way
    assert predicted == pytest.approx(sum(t.numel() * t.element_size() for t in tensors), abs=16)


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


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"])
@pytest.mark.parametrize("form", ["loop", "foreach", "fused"])
def test_a_form_is_traced_as_the_cpu_runs_it(name: str, form: str) -> None:
    """On accelerators, where all forms are measured, it is one call per tensor."""
    if form == "fused" and name not in ("SGD", "Adam", "AdamW", "Adagrad"):
        pytest.skip("has no fused form")
    model, kind = nn.Linear(4, 2), getattr(torch.optim, name)
    flags = {} if form == "loop" else {form: True}
    found = traced_with(kind(model.parameters(), lr=0.1, **flags), model)
    assert not found.real
    ops = [c.op for c in updates(found)]
    whole = [f"optimizer::{name}"] * 2
    assert [c.op for c in updates(found.on("cuda"))] == whole
    assert found.optimizer_state_bytes == pytest.approx(found.on("mps").optimizer_state_bytes, abs=16)
    if form == "fused":
        assert sum(op.startswith("aten::_fused") for op in ops) == 1
    elif form == "foreach":
        assert any("_foreach_" in op for op in ops)
        assert not any(op.startswith("optimizer::") for op in ops)
    else:
        assert ops == whole


@pytest.mark.parametrize(
    ("name", "settings", "op"),
    [
        ("SGD", {"momentum": 0.9}, "mul_"),
        ("SGD", {"momentum": 0.9, "nesterov": True}, "add"),
        ("SGD", {"weight_decay": 0.1}, "add"),
        ("Adam", {"amsgrad": True}, "maximum"),
        ("RMSprop", {"centered": True}, "lerp_"),
    ],
)
def test_what_settings_add_is_in_the_update(name: str, settings: dict[str, Any], op: str) -> None:
    model = nn.Linear(4, 2)
    found = traced_with(getattr(torch.optim, name)(model.parameters(), lr=0.1, **settings), model)
    assert sum(c.op == f"aten::{op}" for c in updates(found)) == 2
    assert [c.op for c in updates(found.on("cuda"))] == [f"optimizer::{name}"] * 2
    assert found.on("cuda").python_calls < found.python_calls


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
