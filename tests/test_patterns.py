"""Patterns of real scripts that break tools which look at models: each is priced, and nothing of it changes."""

from __future__ import annotations

import math
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from forwards import module
from pictures import changed
from process_state import process_state
from torch import Tensor, nn
from torch.nn.utils import rnn

import placer
from placer.profile.profile import Profile

#: A model or step, the arguments of ``choose``, and what must stay as it is.
Case = tuple[Any, dict[str, Any], list[Any]]
CASES: list[Callable[[], Case]] = []


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES.append(build)
    return build


@case
def weights_made_by_a_hook() -> Case:
    layer = nn.Linear(8, 8)
    raw = layer._parameters.pop("weight")
    layer.register_parameter("raw", raw)
    layer.register_forward_pre_hook(lambda m, _: setattr(m, "weight", m.raw * math.sqrt(2 / 8)))
    return nn.Sequential(layer, nn.ReLU()), {"batch": torch.randn(4, 8)}, []


@case
def a_hook_that_changes_the_output() -> Case:
    inner = module(lambda self, x: (self.body(x), None), body=nn.Linear(8, 8))
    inner.register_forward_hook(lambda m, given, output: output[0])
    return module(lambda self, x: x + self.inner(x), inner=inner), {"batch": torch.randn(4, 8)}, []


@case
def parameters_reached_by_a_weak_reference() -> Case:
    scale = nn.Parameter(torch.ones(8))
    reference = weakref.ref(scale)
    return (
        module(lambda self, x: self.body(x) * reference(), body=nn.Linear(8, 8), kept=[scale]),
        {"batch": torch.randn(4, 8)},
        [scale],
    )


@case
def a_loss_with_a_moving_centre() -> Case:
    centre = [torch.zeros(3)]

    def loss(output: Tensor) -> Tensor:
        centre[0] = (0.9 * centre[0] + 0.1 * output.mean(0)).detach()
        return (output - centre[0]).square().mean()

    return nn.Linear(8, 3), {"batch": torch.randn(4, 8), "loss": loss}, [centre]


@case
def forces_as_gradients_of_an_energy() -> Case:
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))

    def forward(self: Any, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        energy = self.net(x).sum()
        return -torch.autograd.grad(energy, x, create_graph=True)[0]

    return module(forward, net=net), {"batch": torch.randn(5, 3)}, []


@case
def gradients_by_torch_func() -> Case:
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    weights = {name: value.detach() for name, value in net.named_parameters()}

    def loss(values: dict[str, Tensor], row: Tensor) -> Tensor:
        return torch.func.functional_call(net, values, (row[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness="different")
    return (lambda x: each(weights, x)), {"batch": torch.randn(6, 4), "modules": net}, [weights]


@case
def attention_that_asks_for_the_compiler() -> Case:
    from torch.nn.attention.flex_attention import flex_attention

    def forward(self: Any, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (2, 16)).transpose(1, 2)
        return flex_attention(heads, heads, heads)

    return module(forward, project=nn.Linear(8, 32)), {"batch": torch.randn(2, 16, 8), "mode": "infer"}, []


@case
def an_ensemble_by_vmap() -> Case:
    nets = [nn.Linear(4, 2) for _ in range(3)]
    stacked, _ = torch.func.stack_module_state(nets)  # type: ignore[arg-type]

    def one(values: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(nets[0], values, (x,))

    return (
        (lambda x: torch.func.vmap(one, in_dims=(0, None))(stacked, x)),
        {
            "batch": torch.randn(6, 4),
            "modules": nets,
        },
        [stacked],
    )


@case
def a_gradient_penalty() -> Case:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Mish(), nn.Dropout(0.2), nn.Linear(8, 1))

    def step(x: Tensor) -> None:
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        (slope.norm(dim=1) - 1).square().mean().backward()

    return step, {"batch": torch.randn(6, 4), "modules": critic}, []


@case
def two_threads_in_forward() -> Case:
    pool = ThreadPoolExecutor(2)
    list(pool.map(str, range(4)))  # its threads exist

    def forward(self: Any, x: Tensor) -> Tensor:
        results = list(pool.map(self.body, x.chunk(2)))
        thread = threading.Thread(target=lambda: results.append(self.body(x)))
        thread.start()
        thread.join()
        return torch.cat(results)

    return module(forward, body=nn.Linear(4, 4)).eval(), {"batch": torch.randn(6, 4), "mode": "infer"}, []


@case
def an_exception_that_forward_catches() -> Case:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("not on this device")

    def forward(self: Any, x: Tensor) -> Any:
        try:
            x = self.fast(x)
        except RuntimeError:
            x = self.slow(x)
        return self.after(x)

    return module(forward, fast=Fails(), slow=nn.Linear(4, 4), after=nn.Linear(4, 2)), {"batch": torch.ones(3, 4)}, []


@case
def a_forward_that_yields() -> Case:
    def forward(self: Any, x: Tensor) -> Iterator[Tensor]:
        for layer in self.layers:
            x = layer(x)
            yield x

    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    return module(forward, layers=layers).eval(), {"batch": torch.randn(3, 4), "mode": "infer"}, []


@case
def a_module_without_inputs() -> Case:
    target = torch.randn(4)
    points = nn.Parameter(torch.zeros(4))
    return module(lambda self: {"loss": (self.points - target).square().sum()}, points=points), {}, []


@case
def a_module_without_parameters() -> Case:
    def forward(self: Any, wave: Tensor) -> Tensor:
        return torch.stft(wave, 64, window=torch.hann_window(64), return_complex=True).abs().log1p()

    return module(forward), {"batch": torch.randn(2, 1000)}, []


@case
def a_complex_output() -> Case:
    weight = nn.Parameter(torch.randn(9, dtype=torch.cfloat))
    return module(lambda self, x: torch.fft.rfft(x) * self.weight, weight=weight), {"batch": torch.randn(4, 16)}, []


@case
def sparse_weights() -> Case:
    weight = nn.Parameter(torch.randn(8, 8).relu().to_sparse_csr())
    return (
        module(lambda self, x: torch.sparse.mm(self.weight, x), weight=weight).eval(),
        {
            "batch": torch.randn(8, 4),
            "mode": "infer",
        },
        [],
    )


@case
def a_nested_input() -> Case:
    rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), {"batch": rows, "mode": "infer"}, []


@case
def a_jagged_input() -> Case:
    rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), {"batch": rows, "mode": "infer"}, []


@case
def a_packed_sequence() -> Case:
    packed = rnn.pack_padded_sequence(torch.randn(3, 7, 4), torch.tensor([7, 4, 2]), batch_first=True)
    return nn.LSTM(4, 8, batch_first=True).eval(), {"batch": (packed,), "mode": "infer"}, []


@case
def a_dynamically_quantized_model() -> Case:
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {nn.Linear})
    return model.eval(), {"batch": torch.randn(4, 8), "mode": "infer"}, []


@case
def a_frozen_script() -> Case:
    frozen = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()))
    frozen(torch.randn(4, 8))  # torch keeps its method from the first call on
    return frozen, {"batch": torch.randn(4, 8)}, []


@case
def a_condition_as_an_operator() -> Case:
    def forward(self: Any, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.body(x), lambda x: self.body(-x), (x,))

    return module(forward, body=nn.Linear(4, 4)).eval(), {"batch": torch.ones(3, 4), "mode": "infer"}, []


@case
def an_object_that_hands_on_what_it_lacks() -> Case:
    class Delegates:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    helper = Delegates(random.Random(3))
    net = module(lambda self, x: self.body(x) * helper.random(), body=nn.Linear(4, 4), helper=helper)
    net.lock = threading.Lock()  # type: ignore[assignment]
    return net, {"batch": torch.randn(3, 4)}, []


@case
def a_step_that_sets_switches_and_draws() -> Case:
    net, generator, numbers = nn.Linear(4, 2), torch.Generator().manual_seed(3), np.random.default_rng(3)
    ring = np.zeros((8, 4), dtype=np.float32)

    def step(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        ring[int(numbers.integers(8))] = x[0].detach().numpy()
        return net(x + torch.randn(4, generator=generator, dtype=torch.float32))

    return step, {"batch": torch.randn(3, 4), "modules": net}, [generator.get_state(), ring]


@case
def lbfgs() -> Case:
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return net, {"batch": torch.randn(16, 4), "optimizer": torch.optim.LBFGS(net.parameters())}, []


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "error::placer.PlacerWarning")
@pytest.mark.parametrize("build", CASES, ids=lambda build: build.__name__)
def test_a_pattern_is_priced_and_stays_as_it_is(build: Callable[[], Case], calibrated: Profile) -> None:
    model, options, watched = build()
    modules = [model] if isinstance(model, nn.Module) else options.get("modules", [])
    dense = [] if build is sparse_weights else [modules] if isinstance(modules, nn.Module) else modules
    before = {**process_state(*dense), "watched": repr(watched)}
    placement = placer.choose(model, devices="cpu", **options)
    assert placement.predictions["cpu"].step_seconds > 0
    assert placement.predictions["cpu"].priced.trace.calls
    explanation = placer.explain(model, what_if="RTX 4090", **options)
    bound = build in (a_dynamically_quantized_model, a_frozen_script)
    assert len(explanation.devices) == (1 if bound else 2)
    assert any("cuda@RTX 4090 is left out: not to be moved" in note for note in explanation.notes) is bound
    after = {**process_state(*dense), "watched": repr(watched)}
    assert changed(before, after) == []


def test_layers_follow_an_exception_that_is_caught(calibrated: Profile) -> None:
    model, options, _ = an_exception_that_forward_catches()
    trace = placer.choose(model, devices="cpu", **options).predictions["cpu"].priced.trace
    assert {call.layer for call in trace.calls if call.op == "aten::addmm"} == {"slow", "after"}


def test_inference_mode_changes_no_price(calibrated: Profile) -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10)).eval()
    by = {}
    for context in (torch.no_grad, torch.inference_mode):
        inside = module(context()(lambda self, x: self.net(x)), net=net).eval()
        by[context] = placer.choose(inside, (32, 64), mode="infer", devices="cpu").predictions["cpu"].priced.trace
    plain, inference = by.values()
    assert [c.op for c in plain.calls] == [c.op for c in inference.calls]


def test_a_dictionary_goes_where_the_signature_says(calibrated: Profile) -> None:
    whole = module(lambda self, batch: self.body(batch["x"]), body=nn.Linear(4, 2))
    named = module(lambda self, x: self.body(x), body=nn.Linear(4, 2))
    for model in (whole, named):
        assert placer.choose(model, batch={"x": torch.randn(3, 4)}, devices="cpu").confidence == 1.0


def test_lbfgs_is_priced_as_a_range(calibrated: Profile) -> None:
    model, options, _ = lbfgs()
    found = placer.choose(model, devices="cpu", **options).predictions["cpu"]
    once = placer.choose(model, devices="cpu", **{**options, "optimizer": "sgd"}).predictions["cpu"]
    assert found.step_seconds > 10 * once.step_seconds
    assert found.low < found.step_seconds / 10
    assert found.priced.trace.evaluations == (1, 20, 25)
