"""Reading never runs anything: no pickle, no code but the user's target, no file outside its place."""

from __future__ import annotations

import ast
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from torch import nn

import placer
from placer import profile as profiles
from placer.calibration.measuring.journal import Journal
from placer.calibration.validation import record
from placer.cli import main
from placer.decision import history
from placer.errors import PlacerError
from placer.profile.profile import Profile

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((*(ROOT / "placer").rglob("*.py"), *(ROOT / "calibration").rglob("*.py")))

#: Calls and modules that turn a file into running code.
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib.numpy_pickle"}
FORBIDDEN_CALLS = {
    "joblib.load", "joblib.Memory", "torch.load", "torch.serialization.load", "torch.jit.load", "torch.hub.load",
    "torch.export.load", "torch.package.PackageImporter", "numpy.load", "np.load", "pandas.read_pickle", "yaml.load",
    "runpy.run_path", "runpy.run_module", "eval", "exec", "compile", "os.system", "os.popen",
}  # fmt: skip
#: Programs the user names on the command line, which are run: a script, an exported one, which torch unpickles, and a
#: call of an op, which whoever prices one writes there.
ALLOWED_CALLS = {
    "placer/workload/target.py": {"torch.export.load"}, "placer/run/script.py": {"compile", "exec"},
    "calibration/lab/validators/ops.py": {"compile", "eval"},
    "calibration/lab/validators/timed_script.py": {"runpy.run_path"},
}  # fmt: skip
#: A process reads what its own child sends it through a pipe, which nobody else can write to.
ALLOWED_MODULES = {"placer/tracing/child.py": {"pickle"}}
#: Where a module is imported by a name: the user's target, the command line's own modules, names loaded on first use,
#: and packages of networks that are optional.
IMPORTERS = {
    "calibration/__init__.py", "calibration/lab/__init__.py", "calibration/lab/published/networks.py",
    "calibration/lab/published/plain_networks.py",
    "placer/__init__.py", "placer/api.py",
    "placer/cli/group.py", "placer/tracing/isolation.py",
}  # fmt: skip
LOADERS_OF_PROGRAMS = {"placer.workload.target.load_target", "placer.workload.load_target"}
IMPORTING_CALLS = {"importlib.import_module", "import_module", "__import__", "loader.exec_module"}


def called(tree: ast.AST) -> Iterator[str]:
    """Every called name as it is written: ``torch.load``, ``eval``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield ast.unparse(node.func)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def named_in(path: Path) -> tuple[str, frozenset[str], frozenset[str]]:
    """A source's path from the root, what it imports, and what it calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return path.relative_to(ROOT).as_posix(), frozenset(imported(tree)), frozenset(called(tree))


def test_no_file_holds_what_executes_data() -> None:
    for name, imports, calls in map(named_in, SOURCES):
        assert FORBIDDEN_MODULES & imports == ALLOWED_MODULES.get(name, set()), name
        assert FORBIDDEN_CALLS & calls == ALLOWED_CALLS.get(name, set()), name
        assert not FORBIDDEN_CALLS & imports, name  # ``from torch import load`` would be called ``load``


def test_code_is_imported_by_name_in_few_places() -> None:
    assert {name for name, _, calls in map(named_in, SOURCES) if IMPORTING_CALLS & calls} == IMPORTERS


def test_exported_programs_are_loaded_where_the_user_names_one_only() -> None:
    asking = [
        name
        for name, imports, calls in map(named_in, SOURCES)
        if LOADERS_OF_PROGRAMS & imports or "target.load_target" in calls
    ]
    assert asking == ["placer/cli/target.py", "placer/workload/__init__.py"]


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.proof),)


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture(params=range(6))
def malicious(request: pytest.FixtureRequest, proof: Path) -> bytes:
    """A pickle of every protocol. That it works is the first thing to see."""
    content = pickle.dumps(Malicious(proof), protocol=request.param)
    pickle.loads(content)
    proof.rmdir()
    return content


def test_a_pickle_under_any_name_that_is_read_is_never_executed(malicious: bytes, proof: Path, tmp_path: Path) -> None:
    for path in (
        profiles.default_path(),
        profiles.named_path("shared"),
        history.history_path(),
        tmp_path / "x.json",
        tmp_path / "x.journal",
        tmp_path / "x.pkl",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(malicious)
    for source in (None, "shared", tmp_path / "x.json", tmp_path / "x.pkl"):
        with pytest.raises(PlacerError):
            placer.load_profile(source)
        with pytest.warns(placer.PlacerWarning):
            placer.choose(nn.Linear(2, 2), (1, 2), devices=["cpu"], profile=source, move=False)
    with pytest.raises(PlacerError):
        record.load(tmp_path / "x.json")
    assert history.last(5) == [] or all(entry["kind"] for entry in history.last(5))
    assert Journal(tmp_path / "x.journal", {}).observations == []
    file = str(tmp_path / "x.json")
    for arguments in (
        ["explain"],
        ["profile", "list"],
        ["profile", "show"],
        ["profile", "show", "shared"],
        ["profile", "import", file],
        ["validate", "--against", file],
    ):
        CliRunner().invoke(main, arguments)
    assert not proof.exists()


# --- a shared profile stays in its place --------------------------------------------------------------------------

OUTSIDE = [
    "../evil", "..", "a/../../evil", "/tmp/evil", "a/b", "a\\..\\b", "C:\\evil", ".hidden", "evil\0", "~", "-x",
    "a..b", "x" * 81, "naïve", "a b", "a\n",
]  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_importing_under_such_a_name_writes_nothing(name: str, handmade_profile: Profile, tmp_path: Path) -> None:
    shared = profiles.save(handmade_profile, tmp_path / "given" / "shared.json")
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(main, ["profile", "import", str(shared), "--name", name])
    assert result.exit_code == 2, result.output
    assert profiles.imported() == ()
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_in_a_profile_names_a_file(handmade_profile: Profile, tmp_path: Path) -> None:
    """What it holds of texts is shown, never opened: a hostile one changes no file but the one it is saved to."""
    facts = {"cpu": "../cpu", "torch": "/x"}
    hostile = replace(handmade_profile, created="../../created", warnings=("/etc/passwd",), fingerprint=facts)
    path = profiles.save(hostile, tmp_path / "given.json")
    before = sorted(tmp_path.rglob("*"))
    placer.explain(nn.Linear(2, 2), (1, 2), profile=path, what_if=path).to_text(full=True)
    assert sorted(tmp_path.rglob("*")) == before
