from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from placer.errors import TargetError
from placer.workload.target import load_target

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
def fails_at_first():
    net = noted()
    if Path("calls.txt").read_text() == "x":
        raise ValueError("not yet")
    return net
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


@pytest.mark.parametrize("source", ["nets_for_test", "nets_for_test.py", "./nets_for_test.py"])
def test_instances_classes_and_factories(folder: Path, source: str) -> None:
    assert isinstance(load_target(f"{source}:instance")[0], nn.Linear)
    assert type(load_target(f"{source}:Plain")[0]).__name__ == "Plain"
    made, _ = load_target(f"{source}:factory")
    assert isinstance(made, nn.Linear)
    assert made.in_features == 7
    assert isinstance(load_target(f"{source}:inner.model")[0], nn.Linear)


def test_a_factory_runs_once_and_its_weights_are_deferred(folder: Path) -> None:
    made, draw = load_target("nets_for_test:noted")
    assert (folder / "calls.txt").read_text() == "x"
    draw()
    assert made.weight.std().item() == pytest.approx((1 / 3 / 512) ** 0.5, rel=0.05)  # type: ignore[operator]


def test_an_absolute_path(folder: Path) -> None:
    assert isinstance(load_target(f"{folder / 'nets_for_test.py'}:instance")[0], nn.Linear)


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


def test_a_file_keeps_its_own_name_where_that_is_free(folder: Path) -> None:
    made, _ = load_target("nets_for_test.py:Plain")
    assert type(made).__module__ == "nets_for_test"


@pytest.mark.parametrize(("target", "says"), [
    ("nets_for_test", "names no attribute"),
    ("nets_for_test.py", "names no attribute"),
    (":instance", "names no attribute"),
    ("nets_for_test:", "names no attribute"),
    ("missing.py:net", "there is no file missing.py"),
    ("./:net", "there is no file"),
    ("no_such_package.models:net", "there is no module 'no_such_package.models'"),
    ("..:net", "there is no module"),
    ("nets_for_test.py:nothing", "has no attribute 'nothing' (it has: "),
    ("nets_for_test.py:Wide", "needs arguments (missing a required argument: 'width')"),
    ("nets_for_test.py:wants", "needs arguments"),
    ("nets_for_test.py:broken", "raised RuntimeError: first line"),
    ("nets_for_test.py:other", "returned a int, not an nn.Module"),
    ("nets_for_test.py:number", "is a int, not an nn.Module"),
])  # fmt: skip
def test_errors_are_one_line_with_the_reason(folder: Path, target: str, says: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(target)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("source", "says"), [
    ("import no_such_module_anywhere", "ModuleNotFoundError"),
    ("def f(:", "SyntaxError"),
    ("import sys; sys.exit(3)", "ended the interpreter (exit code 3)"),
    ("1 / 0", "ZeroDivisionError"),
])  # fmt: skip
@pytest.mark.parametrize("form", ["bad_for_test.py", "bad_for_test"])
def test_errors_inside_the_users_file(folder: Path, source: str, says: str, form: str) -> None:
    (folder / "bad_for_test.py").write_text(source)
    with pytest.raises(TargetError) as caught:
        load_target(f"{form}:net")
    assert says in str(caught.value)
