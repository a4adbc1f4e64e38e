"""TARGETs of the command line: models, jobs, classes and factories of the user's files, and saved programs."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn

from placer.errors import TargetError, TraceError
from placer.tracing import trace
from placer.workload import Target, load_target, make_workload
from placer.workload.target import IMAGES
from placer.workload.undrawn import LEAST_ELEMENTS, Undrawn

SOURCE = """
from torch import nn
import beside
instance = nn.Linear(4, 2)
class Plain(nn.Module): pass
class Wide(nn.Module):
    def __init__(self, width): super().__init__()
def factory(): return nn.Linear(beside.WIDTH, 2)
def wants(width, *, bias=True, sizes=()): return nn.Linear(width, 2 + sum(sizes), bias=bias)
def build(settings): return nn.Linear(settings["a:b"], 1)
def broken(): raise RuntimeError("first line\\nsecond line")
def other(): return 3
class inner:
    model = nn.Linear(1, 1)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "nets_for_test.py").write_text(SOURCE)
    (tmp_path / "beside.py").write_text("WIDTH = 7")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in list(sys.modules):
        if name in ("nets_for_test", "beside", "bad_for_test") or name.startswith("placer_target_"):
            del sys.modules[name]


HIDING = """
from dataclasses import dataclass
from torch import nn
@dataclass
class Settings:
    width: "int" = 2
class Net(nn.Linear):
    def __init__(self): super().__init__(4, Settings().width)
"""


@pytest.mark.parametrize("stem", ["random", "collections.abc", "__main__", "nets_for_test"])
def test_a_file_takes_no_other_modules_name(folder: Path, stem: str) -> None:
    """And its classes can be pickled, and be data classes, under the name that it gets."""
    load_target("nets_for_test.py:instance")
    before = dict(sys.modules)
    path = folder / "own" / f"{stem}.py"
    path.parent.mkdir()
    path.write_text(HIDING)
    made = load_target(f"{path}:Net").model
    assert {name: sys.modules[name] for name in before} == before
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    assert type(load_target(f"{path}:Net").model).__module__ == type(made).__module__


BROKEN = {
    "import no_such_module_anywhere": "ModuleNotFoundError", "def f(:": "SyntaxError", "1 / 0": "ZeroDivisionError",
    "import sys; sys.exit(3)": "ended the interpreter (exit code 3)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "says", "source"),
    [
        ("nets_for_test", "names no attribute", ""),
        ("nets_for_test.py", "names no attribute", ""),
        (":instance", "names no attribute", ""),
        ("nets_for_test:", "names no attribute", ""),
        ("missing.py:net", "there is no file missing.py", ""),
        ("./:net", "there is no file", ""),
        ("no_such_package.models:net", "there is no module 'no_such_package.models'", ""),
        ("..:net", "there is no module", ""),
        ("nets_for_test.py:nothing", "has no attribute 'nothing' (it has: ", ""),
        ("nets_for_test.py:Wide", "needs other arguments (missing a required argument: 'width')", ""),
        ("nets_for_test.py:wants", "needs other arguments", ""),
        ("nets_for_test.py:broken", "raised RuntimeError: first line", ""),
        ("nets_for_test.py:other", "returned a int, not an nn.Module", ""),
        ("nets_for_test.py:number", "is a int, not an nn.Module", ""),
        ("missing.pt2", "there is no file missing.pt2", ""),
        ("other.pt2", "other.pt2 is not a program that torch.export.load reads", ""),
        ("nets_for_test.py:wants(width=size)", "size is no Python literal", ""),
        ("nets_for_test.py:wants(__import__('os').getcwd())", "__import__('os').getcwd() is no Python literal", ""),
        ("nets_for_test.py:wants(*(1, 2))", "*(1, 2) is no Python literal", ""),
        ("nets_for_test.py:wants(**{'width': 2})", "each argument once", ""),
        ("nets_for_test.py:wants(width=1, width=2)", "each argument once", ""),
        ("nets_for_test.py:wants(1)(2)", "are not arguments of one call", ""),
        ("nets_for_test.py:wants(1,, 2)", "are not arguments of one call", ""),
        ("nets_for_test.py:wants(1), wants(2)", "are not arguments of one call", ""),
        ("nets_for_test.py:wants(1", "opens a bracket that does not close", ""),
        (
            "nets_for_test.py:wants(3, widht=3)",
            "'widht'); it takes, as literals in brackets behind it: width, bias, sizes",
            "",
        ),
        ("nets_for_test.py:wants('a')", "raised TypeError", ""),
        ("nets_for_test.py:instance()", "a Linear is there already; name it without brackets", ""),
        ("nets_for_test.py:number(3)", "is a int, not an nn.Module", ""),
        *((f"bad_for_test{end}:net", says, source) for source, says in BROKEN.items() for end in ("", ".py")),
    ],
)
def test_errors_are_one_line_with_the_reason(folder: Path, target: str, says: str, source: str) -> None:
    (folder / "bad_for_test.py").write_text(source)
    (folder / "other.pt2").write_text("not a program")
    with pytest.raises(TargetError) as caught:
        load_target(target)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "shape", "bias"),
    [
        ("instance", (2, 4), True),
        ("inner.model", (1, 1), True),
        ("factory", (2, 7), True),
        ("factory()", (2, 7), True),
        ("wants(7)", (2, 7), True),
        ("wants(width=7, bias=False)", (2, 7), False),
        ("wants(3, sizes=(1, -0x2, 4))", (5, 3), True),
        ("build({'a:b': 5})", (1, 5), True),
    ],
)
@pytest.mark.parametrize(
    "source",
    [
        "nets_for_test",
        "nets_for_test.py",
        "./nets_for_test.py",
        "{}/nets_for_test.py",
        "{}/in (brackets)/nets_for_test.py",
    ],
)
def test_an_instance_or_a_factory_with_the_literals_behind_its_name(
    folder: Path, written: str, shape: tuple[int, ...], bias: bool, source: str
) -> None:
    other = folder / "in (brackets)" / "nets_for_test.py"
    other.parent.mkdir()
    other.write_text(SOURCE)
    (other.parent / "beside.py").write_text("WIDTH = 7")
    made = load_target(f"{source.format(folder)}:{written}").model
    assert isinstance(made, nn.Linear)
    assert (tuple(made.weight.shape), made.bias is not None) == (shape, bias)


@pytest.mark.parametrize("written", ["Plain", "Wide(width=3)"])
def test_a_class_is_made_and_its_file_keeps_its_own_name_as_that_is_free(folder: Path, written: str) -> None:
    made = type(load_target(f"nets_for_test.py:{written}").model)
    assert (made.__name__, made.__module__) == (written.partition("(")[0], "nets_for_test")


# --- networks for images, whose usual batch is known ------------------------------------------------------------------

REGISTRY = """
from functools import partial
from torch import nn
class Images: pass
class Weights:
    class DEFAULT:
        transforms = partial(Images, crop_size=48)
def get_model_weights(builder):
    if builder.__name__ != "known": raise ValueError("the method is missing the 'weights' argument")
    return Weights
"""
BUILDERS = """
fetched = []
def known(*, weights=None, channels=4): return nn.Conv2d(3, channels, 3)
def other(*, weights=None): return nn.Conv2d(3, 4, 3)
def segmenting(*, weights=None, weights_backbone="IMAGENET"):
    fetched.append(weights_backbone)
    return nn.Conv2d(3, 4, 3)
def configured():
    net = nn.Conv2d(1, 4, 3)
    net.default_cfg = {"input_size": (1, 28, 28)}
    return net
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a registry of published weights as torchvision has it, around a module of builders."""
    path = tmp_path / "vision_for_test"
    path.mkdir()
    (path / "__init__.py").write_text("")
    (path / "models.py").write_text(REGISTRY + BUILDERS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield "vision_for_test.models"
    for name in ("vision_for_test", "vision_for_test.models"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("builder", "size"),
    [
        ("known", (3, 48, 48)),
        ("known(channels=2)", (3, 48, 48)),
        ("configured", (1, 28, 28)),
        ("other", None),
        ("segmenting", None),
        ("segmenting(weights_backbone='MINE')", None),
    ],
)
def test_the_batch_is_what_published_weights_take_and_none_are_fetched(
    package: str, builder: str, size: tuple[int, ...] | None
) -> None:
    found = load_target(f"{package}:{builder}")
    assert [tuple(tensor.shape) for tensor in found.args] == ([] if size is None else [(IMAGES, *size)])
    assert found.assumed == (size is not None)
    backbones = sys.modules[package].fetched  # type: ignore[attr-defined]
    assert backbones == ["MINE" if "MINE" in builder else None] * builder.startswith("segmenting")


# --- weights that nobody draws, until a step has to run ---------------------------------------------------------------

WIDE = 512
assert WIDE * WIDE >= LEAST_ELEMENTS


@pytest.mark.parametrize("reads", [False, True])
def test_only_a_step_that_runs_is_drawn_for(reads: bool) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(x)
        if reads and out.std().item() == 0.0:
            raise ValueError("nobody has drawn")
        return out

    with Undrawn() as undrawn:
        body = nn.Linear(WIDE, WIDE)
    given = make_workload(module(forward, body=body), batch=torch.ones(2, WIDE), mode="infer")
    assert trace(replace(given, draw=undrawn.draw)).real == reads
    assert body.weight.count_nonzero().item() == 0  # in the child, if at all
    undrawn.draw()
    assert body.weight.std().item() > 0.01


# --- saved programs ---------------------------------------------------------------------------------------------------


class Several(nn.Module):
    def forward(self, ids: torch.Tensor, scale: torch.Tensor, *, bias: torch.Tensor) -> torch.Tensor:
        return ids * scale + bias


def described(found: Target) -> list[str]:
    assert not found.model.training
    workload = replace(make_workload(found.model, batch=found.args), kwargs=dict(found.kwargs))
    assert [call.op for call in trace(workload).calls] == ["aten::mul", "aten::add"]
    return workload.describe_inputs()


def test_an_exported_program_comes_with_its_inputs_and_takes_other_shapes_of_them(tmp_path: Path) -> None:
    """One of two positional inputs and a keyword, the batch of which may vary."""
    rows, path = torch.export.Dim("rows", min=2, max=4096), tmp_path / "several.pt2"
    given = (torch.zeros(8, 3, dtype=torch.int64), torch.randn(8, 1)), {"bias": torch.randn(8, 3)}
    shapes: Any = {"ids": {0: rows}, "scale": {0: rows}, "bias": {0: rows}}
    program = torch.export.export(Several().eval(), *given, dynamic_shapes=shapes)
    torch.export.save(program, path)
    found = load_target(str(path))
    assert described(found) == ["8×3 int64", "8×1 float32", "8×3 float32"]
    shapes = [((32, 3), None), ((32, 1), torch.float32), ((32, 3), None)]
    assert described(found.reshaped(shapes)) == ["32×3 int64", "32×1 float32", "32×3 float32"]
    with pytest.raises(ValueError, match="--batch is given 2 times, and the program takes 3: 8,3, 8,1, 8,3"):
        found.reshaped(shapes[:2])
    fixed = [((32, 2), None), ((32, 1), None), ((32, 2), None)]
    with pytest.raises(TraceError, match="give that, or export it with dynamic_shapes"):
        described(found.reshaped(fixed))
