from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from placer.workload.signature import (
    callable_signature,
    module_signature,
    optimizer_signature,
    signature,
    without_sizes,
)


def net(**changes: Any) -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 8, 3, **changes), nn.ReLU())


def test_equal_architectures_have_one_signature() -> None:
    assert module_signature(net()) == module_signature(net())


def test_attributes_that_leave_parameters_alone_count() -> None:
    assert module_signature(net()) != module_signature(net(stride=2))
    assert module_signature(net()) != module_signature(net().eval())
    assert module_signature(net()) != module_signature(net().requires_grad_(False))
    assert module_signature(net()) != module_signature(net().double())


def test_configuration_objects_are_inspected() -> None:
    class Config:
        def __init__(self, layers: int) -> None:
            self.layers = layers

    class Net(nn.Module):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.config = Config(layers)

    assert module_signature(Net(1)) == module_signature(Net(1))
    assert module_signature(Net(1)) != module_signature(Net(2))


def test_what_cannot_be_inspected_equals_nothing() -> None:
    opaque = iter([1])
    assert signature(opaque) != signature(opaque)


def test_losses_of_the_same_code_and_kind_of_capture_are_one() -> None:
    def loss_to(target: torch.Tensor) -> Any:
        return lambda output: F.mse_loss(output, target)

    assert callable_signature(loss_to(torch.ones(4))) == callable_signature(loss_to(torch.zeros(4)))
    assert callable_signature(loss_to(torch.ones(4))) != callable_signature(loss_to(torch.ones(5)))
    smooth = functools.partial(F.cross_entropy, label_smoothing=0.1)
    assert callable_signature(smooth) == callable_signature(functools.partial(F.cross_entropy, label_smoothing=0.1))
    assert callable_signature(smooth) != callable_signature(F.cross_entropy)


def test_optimizer_switches_count_learning_rates_do_not() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2))]
    base = optimizer_signature(torch.optim.SGD(parameters, lr=0.1))
    assert base == optimizer_signature(torch.optim.SGD(parameters, lr=0.2))
    assert base != optimizer_signature(torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    assert base != optimizer_signature(torch.optim.SGD(parameters, lr=0.1, foreach=True))
    assert base != optimizer_signature(torch.optim.Adam(parameters, lr=0.1))


def test_sizes_are_taken_out_of_contiguous_tensors_only() -> None:
    one, other = (signature({"x": torch.empty(n, 4), "y": [torch.empty(n)], "z": "text"}) for n in (3, 5))
    assert one != other
    assert without_sizes(one) == (without_sizes(other)[0], ((3, 4), (3,)))
    assert without_sizes(other)[1] == ((5, 4), (5,))
    assert without_sizes(signature(torch.empty(3, 4, 1)))[0] != without_sizes(signature(torch.empty(3, 4)))[0]
    for odd in (torch.empty(4, 3).t(), torch.empty(4, 1).t(), torch.empty(1).expand(3)):
        assert without_sizes(signature(odd)) == (signature(odd), ())
    assert without_sizes(signature(torch.empty(0, 4)))[1] == ((0, 4),)
