"""What is run: checked arguments, the loss that a step differentiates, and what is around the model."""

from __future__ import annotations

import re
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from placer.workload import compiled_mode, loss_of, make_workload, optimizer_classes

MODEL = nn.Linear(8, 2)


def test_example_forms() -> None:
    t = torch.ones(2, 8)
    Named = namedtuple("Named", ["x"])

    @dataclass
    class Item:
        x: torch.Tensor

    item, named = Item(t), Named(t)
    assert make_workload(MODEL, batch=t).args == (t,)
    assert make_workload(MODEL, batch=(t, 3)).args == (t, 3)
    assert make_workload(MODEL, batch={"input": t}).kwargs == {"input": t}
    for whole in ({"x": t}, [t], item, named, {1: t}):  # no parameter is called x
        assert make_workload(MODEL, batch=whole).args == (whole,)


def test_mode_none_reads_the_model_and_autocast_true_is_bfloat16() -> None:
    for training, mode, expected in ((True, None, "train"), (False, None, "infer"), (True, "infer", "infer")):
        assert make_workload(nn.Linear(8, 2).train(training), (1, 8), mode=mode).mode == expected
    for given, dtype in ((False, None), (True, torch.bfloat16), (torch.float16, torch.float16)):
        assert make_workload(MODEL, (1, 8), autocast=given).autocast is dtype


def test_optimizer_defaults_to_adam_in_training_and_is_left_out_of_inference() -> None:
    sgd = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    for given, kept, name in ((None, "adam", "adam"), ("AdamW", "adamw", "adamw"), (sgd, sgd, "sgd")):
        workload = make_workload(MODEL, (1, 8), optimizer=given)
        assert (workload.optimizer, workload.optimizer_name) == (kept, name)
    infer = make_workload(MODEL, (1, 8), optimizer=sgd, loss=torch.sum, mode="infer")
    assert (infer.optimizer, infer.loss) == (None, None)
    assert {"sgd", "adam", "adamw", "rmsprop", "adagrad"} <= set(optimizer_classes())
    assert not {"optimizer", "lbfgs", "sparseadam"} & set(optimizer_classes())


def test_step_functions() -> None:
    def step() -> None: ...

    workload = make_workload(step, modules=MODEL)
    assert (workload.mode, workload.args, workload.modules, workload.optimizer) == ("train", (), (MODEL,), None)
    assert workload.is_step_function
    assert make_workload(step, modules=iter([MODEL])).modules == (MODEL,)

    class Trainer(nn.Module):
        def training_step(self) -> None: ...

    trainer = Trainer()
    assert make_workload(trainer.training_step).modules == (trainer,)


# A wrong argument raises at once, saying what was given and what is accepted.

SHAPES: list[tuple[Any, type[Exception], str]] = [
    (32, TypeError, "shape like (32, 84)"),
    ("32,8", TypeError, "'32,8'"),
    ((), ValueError, "batch is missing"),
    ((32, -1), ValueError, "not -1"),
    ((32, 8.0), TypeError, "not 8.0"),
    ((True, 8), TypeError, "not True"),
    ((32, None), TypeError, "not None"),
    ([(32, 8), 4], TypeError, "mixes sizes and shapes"),
    ([(32, "8")], TypeError, "'8'"),
    ({"x": 3}, TypeError, "a nest of tensors, not dict"),
    (None, ValueError, "batch is missing"),
]
ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mode": "training"}, ValueError, "'train' or 'infer', not 'training'"),
    ({"mode": 1}, ValueError, "not 1"),
    ({"mode": []}, ValueError, "not []"),
    ({"steps": 0}, ValueError, "at least 1"),
    ({"steps": -5}, ValueError, "not -5"),
    ({"steps": 1.0}, TypeError, "not 1.0"),
    ({"steps": True}, TypeError, "not True"),
    ({"steps": 2**54}, ValueError, "at most"),
    ({"data": "gpu"}, ValueError, "'host' or 'pinned' or 'device', not 'gpu'"),
    ({"data": {}}, ValueError, "not {}"),
    ({"outputs": "cpu"}, ValueError, "'host' or 'device', not 'cpu'"),
    ({"autocast": torch.float32}, ValueError, "torch.bfloat16 or torch.float16"),
    ({"autocast": "bf16"}, TypeError, "not 'bf16'"),
    ({"autocast": 0}, TypeError, "not 0"),
    ({"optimizer": "adamn"}, ValueError, "unknown optimizer 'adamn'"),
    ({"optimizer": torch.optim.Adam}, TypeError, "not the class Adam"),
    ({"optimizer": 3}, TypeError, "not int"),
    ({"loss": "mse"}, TypeError, "not str"),
    ({"modules": nn.Linear(1, 1)}, ValueError, "is for a step function"),
    ({"target": torch.ones(1, 2)}, ValueError, "give loss= too"),
    ({"loss": nn.CrossEntropyLoss()}, ValueError, "give target="),
    ({"loss": lambda output: output.sum(), "target": (1, 2)}, ValueError, "leave target out"),
    ({"loss": nn.functional.mse_loss, "target": "labels"}, TypeError, "target must be a shape like (32, 84)"),
]
MODELS: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (nn.Linear, {}, TypeError, "not the class Linear"),
    (3, {}, TypeError, "not int"),
    (print, {"modules": "model"}, TypeError, "not str"),
    (print, {"modules": [3]}, TypeError, "not int"),
    (print, {"modules": MODEL, "optimizer": "adam"}, ValueError, "its own optimizer"),
    (print, {"modules": MODEL, "loss": torch.sum}, ValueError, "its own loss"),
]


@pytest.mark.parametrize(
    ("model", "arguments", "error", "says"),
    [
        *((MODEL, {"batch": shape}, error, says) for shape, error, says in SHAPES),
        *((MODEL, {"batch": (1, 8), **arguments}, error, says) for arguments, error, says in ARGUMENTS),
        *MODELS,
    ],
)
def test_wrong_arguments(model: Any, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        make_workload(model, **arguments)


# --- the loss: what is given, what the model calls its loss, or all that it returns -----------------------------------


def learnt(*values: complex, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def test_a_given_loss_comes_first_then_the_models_own() -> None:
    output = SimpleNamespace(loss=learnt(1.0).sum(), logits=learnt(2.0))
    assert loss_of(output, lambda out: 2.0 * out.logits.sum()).item() == 4.0
    assert loss_of(output, lambda out: out.logits.detach().sum()) is None
    assert loss_of(output, lambda out: None) is None
    for make in (OrderedDict, dict, SimpleNamespace):
        assert loss_of(make(vars(output)) if make is not SimpleNamespace else output, None) is output.loss


def test_else_all_floating_outputs_are_summed_each_once_and_the_real_part_of_complex_ones() -> None:
    x, z = learnt(1.0, 2.0), learnt(3.0 + 4.0j, dtype=torch.complex64)
    found = loss_of({"x": [x, (x,)], "z": z, "row": torch.arange(3), "fixed": torch.ones(2), "loss": learnt(5.0)}, None)
    assert (found.item(), found.is_complex()) == (11.0, False)
    found.backward()
    assert z.grad is not None
    assert loss_of([torch.ones(2), 3, None], None) is None


# --- torch.compile is told without compiling anything -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_the_mode_of_a_module_a_compiled_call_and_a_function(mode: str) -> None:
    in_place = nn.Linear(2, 2)
    in_place.compile(mode=mode)
    compiled = (torch.compile(nn.Linear(2, 2), mode=mode), in_place, torch.compile(lambda x: x + 1, mode=mode))
    assert [compiled_mode(each) for each in compiled] == [mode] * 3


def test_a_backend_that_has_every_attribute_is_named() -> None:
    """As those have that stand for an object in another process."""
    compiled: Any = torch.compile(nn.Linear(2, 2))
    compiled.dynamo_ctx.callback = Mock()
    assert compiled_mode(compiled) == "backend Mock"
