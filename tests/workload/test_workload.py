from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from placer.workload import make_workload, optimizer_classes


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(8, 2)


def test_one_shape_is_one_float32_meta_tensor(model: nn.Module) -> None:
    torch.set_default_dtype(torch.float64)  # the contract says float32, whatever the default is
    workload = make_workload(model, (32, 8))
    (x,) = workload.args
    assert (x.shape, x.dtype, x.device.type) == ((32, 8), torch.float32, "meta")
    assert workload.modules == (model,)
    assert not workload.is_step_function


@pytest.mark.parametrize("shapes", [[(4, 3), (4, 2)], ((4, 3), [4, 2]), [torch.Size([4, 3]), (4, 2)]])
def test_a_sequence_of_shapes_is_several_inputs(model: nn.Module, shapes: Any) -> None:
    assert [tuple(x.shape) for x in make_workload(model, shapes).args] == [(4, 3), (4, 2)]


def test_empty_batches_and_scalars_are_allowed(model: nn.Module) -> None:
    assert make_workload(model, (0, 8)).args[0].shape == (0, 8)
    assert [tuple(x.shape) for x in make_workload(model, [(), (4, 3)]).args] == [(), (4, 3)]


def test_example_forms(model: nn.Module) -> None:
    t = torch.ones(2, 8)
    Named = namedtuple("Named", ["x"])

    @dataclass
    class Item:
        x: torch.Tensor

    item, named = Item(t), Named(t)
    assert make_workload(model, example=t).args == (t,)
    assert make_workload(model, example=(t, 3)).args == (t, 3)
    assert make_workload(model, example={"input": t}).kwargs == {"input": t}
    assert make_workload(model, example={"x": t}).args == ({"x": t},)  # no parameter has that name
    assert make_workload(model, example=[t]).args == ([t],)
    assert make_workload(model, example=item).args == (item,)
    assert make_workload(model, example=named).args == (named,)
    assert make_workload(model, example={1: t}).args == ({1: t},)


@pytest.mark.parametrize(("training", "mode", "expected"), [
    (True, None, "train"), (False, None, "infer"), (True, "infer", "infer"), (False, "train", "train"),
])  # fmt: skip
def test_mode_none_reads_the_model(model: nn.Module, training: bool, mode: str | None, expected: str) -> None:
    model.train(training)
    assert make_workload(model, (1, 8), mode=mode).mode == expected


def test_optimizer_defaults_to_adam_in_training_and_is_left_out_of_inference(model: nn.Module) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    assert make_workload(model, (1, 8)).optimizer == "adam"
    assert make_workload(model, (1, 8), optimizer="AdamW").optimizer == "adamw"
    assert make_workload(model, (1, 8), optimizer=sgd).optimizer is sgd
    assert make_workload(model, (1, 8), optimizer=sgd).optimizer_name == "sgd"
    assert make_workload(model, (1, 8), optimizer=sgd, mode="infer").optimizer is None
    assert make_workload(model, (1, 8), loss=torch.sum, mode="infer").loss is None


def test_optimizer_names_are_those_of_torch() -> None:
    assert {"sgd", "adam", "adamw", "rmsprop", "adagrad"} <= set(optimizer_classes())
    assert not {"optimizer", "lbfgs", "sparseadam"} & set(optimizer_classes())


@pytest.mark.parametrize(("given", "kept"), [
    (None, None), (False, None), (True, torch.bfloat16), (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16),
])  # fmt: skip
def test_autocast(model: nn.Module, given: Any, kept: Any) -> None:
    assert make_workload(model, (1, 8), autocast=given).autocast is kept


def test_step_functions(model: nn.Module) -> None:
    def step() -> None: ...

    workload = make_workload(step, modules=model)
    assert (workload.mode, workload.args, workload.modules, workload.optimizer) == ("train", (), (model,), None)
    assert workload.is_step_function
    assert make_workload(step, modules=iter([model])).modules == (model,)

    class Trainer(nn.Module):
        def training_step(self) -> None: ...

    trainer = Trainer()
    assert make_workload(trainer.training_step).modules == (trainer,)


# A wrong argument raises at once, saying what was given and what is accepted.


@pytest.mark.parametrize(("shape", "error", "says"), [
    (32, TypeError, "shape like (32, 84)"),
    ("32,8", TypeError, "'32,8'"),
    ((), ValueError, "batch_shape is empty"),
    ([], ValueError, "batch_shape is empty"),
    ((32, -1), ValueError, "not -1"),
    ((32, 8.0), TypeError, "not 8.0"),
    ((True, 8), TypeError, "not True"),
    ((32, None), TypeError, "not None"),
    ([(32, 8), 4], TypeError, "mixes sizes and shapes"),
    ([(32, "8")], TypeError, "'8'"),
    (torch.ones(2), TypeError, "batch_shape must be a shape"),
])  # fmt: skip
def test_wrong_shapes(model: nn.Module, shape: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        make_workload(model, shape)


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"mode": "training"}, ValueError, "'train', 'infer' or None"),
    ({"mode": 1}, ValueError, "not 1"),
    ({"steps": 0}, ValueError, "at least 1"),
    ({"steps": -5}, ValueError, "not -5"),
    ({"steps": 1.5}, TypeError, "not 1.5"),
    ({"steps": True}, TypeError, "not True"),
    ({"data": "gpu"}, ValueError, "'host', 'pinned' or 'device', not 'gpu'"),
    ({"autocast": torch.float32}, ValueError, "torch.bfloat16 or torch.float16"),
    ({"autocast": "bf16"}, TypeError, "not 'bf16'"),
    ({"optimizer": "adamn"}, ValueError, "unknown optimizer 'adamn'"),
    ({"optimizer": torch.optim.Adam}, TypeError, "not the class Adam"),
    ({"optimizer": 3}, TypeError, "not int"),
    ({"loss": "mse"}, TypeError, "not str"),
    ({"modules": nn.Linear(1, 1)}, ValueError, "is for a step function"),
    ({"example": torch.ones(1, 8)}, ValueError, "not both"),
])  # fmt: skip
def test_wrong_arguments(model: nn.Module, arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        make_workload(model, (1, 8), **arguments)


def test_wrong_models(model: nn.Module) -> None:
    with pytest.raises(TypeError, match="not the class Linear"):
        make_workload(nn.Linear, (1, 8))
    with pytest.raises(TypeError, match="not int"):
        make_workload(3, (1, 8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="input is missing"):
        make_workload(model)
    with pytest.raises(TypeError, match=r"no tensor was found in numpy\.ndarray"):
        make_workload(model, example=np.ones((2, 8)))


def test_wrong_step_function_arguments(model: nn.Module) -> None:
    with pytest.raises(TypeError, match="not str"):
        make_workload(lambda: None, modules="model")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        make_workload(lambda: None, modules=[3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="its own optimizer"):
        make_workload(lambda: None, modules=model, optimizer="adam")
    with pytest.raises(ValueError, match="its own loss"):
        make_workload(lambda: None, modules=model, loss=torch.sum)
