"""Which ops share a kernel, and what is left of their traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from placer.pricing import describe_step
from placer.pricing.fusion import LARGEST, Place, places_in_kernels
from placer.tracing import OpCall, trace
from placer.workload import make_workload


class Step(nn.Module):
    """A function of the batch and two weights of 64 x 64."""

    def __init__(self, run: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.run, self.a, self.b = run, nn.Parameter(torch.ones(64, 64)), nn.Parameter(torch.ones(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self.a, self.b)


@dataclass(frozen=True)
class Found:
    calls: tuple[OpCall, ...]
    places: list[Place]

    def of(self, op: str, phase: str = "forward") -> Place:
        (place,) = self.all(op, phase)
        return place

    def all(self, op: str, phase: str = "forward") -> list[Place]:
        rows = zip(self.calls, self.places, strict=True)
        return [place for call, place in rows if call.op == f"aten::{op}" and call.phase == phase]

    @property
    def kernels(self) -> int:
        return sum(place.first for place in self.places)


def placed(run: Callable[[Tensor, Tensor, Tensor], Tensor], mode: str = "infer") -> Found:
    found = trace(make_workload(torch.compile(Step(run)), (64, 64), mode=mode))
    regions = [call.phase if call.phase in ("forward", "backward") else "" for call in found.calls]
    return Found(found.calls, places_in_kernels(found, describe_step(found), regions))


def test_a_chain_of_elementwise_ops_is_one_kernel_that_reads_and_writes_once() -> None:
    found = placed(lambda x, a, _: ((x * 2).tanh() + a).relu())
    assert found.kernels == 1
    shares = [found.of(op).traffic for op in ("mul", "tanh", "add", "relu")]
    assert shares == pytest.approx([1 / 2, 0.0, 1 / 3, 1 / 2])  # x is read; a is read; the result is written


def test_a_value_read_twice_is_read_once() -> None:
    found = placed(lambda x, _, __: x.sin() * x.cos())
    assert found.kernels == 1
    shares = [found.of(op).traffic for op in ("sin", "cos", "mul")]
    assert shares == pytest.approx([1 / 2, 0.0, 1 / 3])


def test_products_stand_between_kernels() -> None:
    found = placed(lambda x, a, b: (x.relu() @ a).tanh() @ b)
    assert found.kernels == 2
    assert all(place == Place(-1, first=False, traffic=1.0, again=False) for place in found.all("mm"))
    assert (found.of("relu").traffic, found.of("tanh").traffic) == (1.0, 1.0)  # each reads from memory and writes to it


def test_what_depends_on_a_product_of_its_own_kernel_starts_another() -> None:
    found = placed(lambda x, a, _: (y := x.relu()) + y @ a)
    assert found.of("add").kernel != found.of("relu").kernel
    assert found.of("add").traffic == 1.0


def test_reductions_and_norms_are_fused_with_what_makes_their_operands() -> None:
    found = placed(lambda x, a, _: torch.softmax((x + a) * 0.1, -1).sum(0))
    assert found.kernels == 1
    normed = placed(lambda x, a, _: nn.functional.layer_norm(x + a, (64,)).relu())
    assert normed.kernels == 1
    assert normed.of("native_layer_norm").traffic < 0.1  # only the rows' statistics leave the kernel


def test_views_and_eager_calls_have_no_kernel() -> None:
    found = placed(lambda x, a, _: (x.t() + a).sum(), "train")
    assert found.of("t").kernel == -1
    assert found.all("sum", "loss") == [Place()]


def test_the_backward_pass_computes_cheap_values_anew() -> None:
    found = placed(lambda x, a, b: ((x * a).sigmoid() * b).tanh() @ b, "train")
    (saved,) = found.all("sigmoid")
    assert saved.traffic == 0.0  # eager writes it, for the gradient of the product
    (gradient,) = found.all("sigmoid_backward", "backward")
    assert gradient.traffic < 1.0


def test_two_branches_become_one_kernel_where_they_meet() -> None:
    found = placed(lambda x, a, b: x.sin() + a.cos() * b.relu())
    assert found.kernels == 1


def test_a_value_that_the_model_returns_is_written_also_where_its_kernel_reads_it() -> None:
    last = placed(lambda x, *_: x.exp().sin().cos())
    every = placed(lambda x, *_: ((y := x.exp()), (z := y.sin()), z.cos()))  # type: ignore[arg-type, return-value]
    assert (last.kernels, every.kernels) == (1, 1)
    assert sum(place.traffic for place in last.places) == pytest.approx(1.0)
    assert sum(place.traffic for place in every.places) == pytest.approx(2.0)


def test_a_kernel_holds_so_many_calls_and_no_more() -> None:
    def chain(x: Tensor, *_: Tensor) -> Tensor:
        for _ in range(2 * LARGEST + 1):
            x = x.sin()
        return x

    found = placed(chain)
    held = [sum(place.kernel == each for place in found.places) for each in {place.kernel for place in found.places}]
    assert sorted(held) == [1, LARGEST, LARGEST]
