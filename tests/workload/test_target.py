"""TARGETs of the command line: models, jobs, classes and factories of the user's files, and saved programs."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from placer import profile
from placer.cli import main
from placer.errors import TargetError
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import load_exported, load_target, make_workload
from placer.workload.target import LEAST_ELEMENTS, Undrawn

SOURCE = """
from pathlib import Path
from torch import nn
import beside
instance = nn.Linear(4, 2)
class Plain(nn.Module): pass
class Wide(nn.Module):
    def __init__(self, width): super().__init__()
def factory(): return nn.Linear(beside.WIDTH, 2)
def wants(width): return nn.Linear(width, 2)
def broken(): raise RuntimeError("first line\\nsecond line")
def other(): return 3
def noted():
    calls = Path("calls.txt")
    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
    return nn.Linear(512, 512)
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


@pytest.mark.parametrize("form", ["nets_for_test", "nets_for_test.py", "./nets_for_test.py", "{}/nets_for_test.py"])
def test_instances_classes_and_factories(folder: Path, form: str) -> None:
    source = form.format(folder)
    assert isinstance(load_target(f"{source}:instance")[0], nn.Linear)
    plain, made = load_target(f"{source}:Plain")[0], load_target(f"{source}:factory")[0]
    # The file keeps its own name, as that is free.
    assert (type(plain).__name__, type(plain).__module__) == ("Plain", "nets_for_test")
    assert isinstance(made, nn.Linear)
    assert made.in_features == 7
    assert isinstance(load_target(f"{source}:inner.model")[0], nn.Linear)


def test_a_factory_runs_once_and_its_weights_are_deferred(folder: Path) -> None:
    made, draw = load_target("nets_for_test:noted")
    assert (folder / "calls.txt").read_text() == "x"
    draw()
    assert made.weight.std().item() == pytest.approx((1 / 3 / 512) ** 0.5, rel=0.05)  # type: ignore[operator]


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
    made, _ = load_target(f"{path}:Net")
    assert {name: sys.modules[name] for name in before} == before
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    assert type(load_target(f"{path}:Net")[0]).__module__ == type(made).__module__


BROKEN = {
    "import no_such_module_anywhere": "ModuleNotFoundError", "def f(:": "SyntaxError", "1 / 0": "ZeroDivisionError",
    "import sys; sys.exit(3)": "ended the interpreter (exit code 3)",
}  # fmt: skip


@pytest.mark.parametrize(("target", "says", "source"), [
    ("nets_for_test", "names no attribute", ""),
    ("nets_for_test.py", "names no attribute", ""),
    (":instance", "names no attribute", ""),
    ("nets_for_test:", "names no attribute", ""),
    ("missing.py:net", "there is no file missing.py", ""),
    ("./:net", "there is no file", ""),
    ("no_such_package.models:net", "there is no module 'no_such_package.models'", ""),
    ("..:net", "there is no module", ""),
    ("nets_for_test.py:nothing", "has no attribute 'nothing' (it has: ", ""),
    ("nets_for_test.py:Wide", "needs arguments (missing a required argument: 'width')", ""),
    ("nets_for_test.py:wants", "needs arguments", ""),
    ("nets_for_test.py:broken", "raised RuntimeError: first line", ""),
    ("nets_for_test.py:other", "returned a int, not an nn.Module", ""),
    ("nets_for_test.py:number", "is a int, not an nn.Module", ""),
    *((f"bad_for_test{end}:net", says, source) for source, says in BROKEN.items() for end in ("", ".py")),
])  # fmt: skip
def test_errors_are_one_line_with_the_reason(folder: Path, target: str, says: str, source: str) -> None:
    (folder / "bad_for_test.py").write_text(source)
    with pytest.raises(TargetError) as caught:
        load_target(target)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- weights that nobody draws, until a step has to run ---------------------------------------------------------------

WIDE = 512
assert WIDE * WIDE >= LEAST_ELEMENTS


def test_large_weights_are_zeros_until_they_are_drawn() -> None:
    with Undrawn() as undrawn:
        net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Embedding(WIDE, WIDE, padding_idx=0), nn.Linear(8, 8))
        given = torch.randn(WIDE, WIDE)
        norm = nn.BatchNorm1d(4)
    assert [layer.weight.count_nonzero().item() > 0 for layer in (*net, norm)] == [False, False, True, True]
    assert given.std().item() == pytest.approx(1.0, rel=0.05)
    undrawn.draw()
    assert [layer.weight.std().item() > 0.01 for layer in net] == [True, True, True]
    assert all(layer.weight.requires_grad and layer.weight.is_leaf for layer in net)


@pytest.mark.parametrize("reads", [False, True])
def test_only_a_step_that_runs_is_drawn_for(reads: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(WIDE, WIDE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.body(x)
            if reads and out.std().item() == 0.0:
                raise ValueError("nobody has drawn")
            return out

    with Undrawn() as undrawn:
        net = Net()
    given = make_workload(net, batch=torch.ones(2, WIDE), mode="infer")
    assert trace(replace(given, draw=undrawn.draw)).real == reads
    assert net.body.weight.count_nonzero().item() == 0  # in the child, if at all


# --- saved programs ---------------------------------------------------------------------------------------------------


def test_an_exported_program_comes_with_its_inputs(handmade_profile: Profile, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(84, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    batch = torch.export.Dim("batch", min=2, max=4096)
    path, known = tmp_path / "net.pt2", profile.save(handmade_profile, tmp_path / "profile.json")
    torch.export.save(torch.export.export(model, (torch.randn(8, 84),), dynamic_shapes=({0: batch},)), path)
    loaded, inputs = load_exported(str(path))
    assert [tensor.shape for tensor in inputs] == [(8, 84)]
    assert (loaded.training, loaded(*inputs).shape) == (False, (8, 1))
    for options, inputs, mode in (
        ((), "8×84 float32", "infer"), (("--batch", "512,84", "--mode", "train"), "512×84 float32", "train")
    ):  # fmt: skip
        arguments = ["explain", str(path), "--profile", str(known), "--format", "json", *options]
        result = CliRunner().invoke(main, arguments, prog_name="placer")
        assert result.exit_code == 0, result.output
        values = json.loads(result.stdout)
        assert (values["workload"]["inputs"], values["workload"]["mode"]) == ([inputs], mode)
        assert any(row["op"].startswith("optimizer::") for row in values["ops"]) == (mode == "train")


@pytest.mark.parametrize("content", [None, b"", b"not a program"])
def test_what_is_no_program_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.pt2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TargetError, match=r"other\.pt2") as caught:
        load_exported(str(path))
    assert "\n" not in str(caught.value)
