"""A script under ``placer run`` does what it does under ``python``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import placer
from placer.run import prepare

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ABOUT_ITSELF = """
from __future__ import annotations
import atexit, os, pickle, sys
from beside import VALUE

class Kept:
    here: missing_name = 1

atexit.register(lambda: print("at exit", pickle.loads(pickle.dumps(Kept())).__class__.__name__))
main = sys.modules["__main__"]
print(__name__, __file__, main.__dict__ is globals(), __package__, __spec__ is None, __doc__, VALUE)
print(sys.argv, sys.path[0], "torch" in sys.modules, sys.excepthook is sys.__excepthook__, sorted(main.__dict__)[:4])
"""


def both(python: Run, script: Path, *arguments: str) -> tuple[list[subprocess.CompletedProcess[str]], str]:
    """Without and with placer; the second's stderr without the report."""
    done = [python(str(script), *arguments), python("-m", "placer", "run", str(script), *arguments)]
    return done, re.sub(r"\nplacer: torch was not imported.*\n", "", done[1].stderr)


def test_a_script_finds_itself_where_python_puts_it(python: Run, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3")
    script = tmp_path / "about.py"
    script.write_text(ABOUT_ITSELF)
    (plain, watched), stderr = both(python, script, "--lr", "0.1", "-m", "x")
    assert plain.stdout.count("\n") == 3
    assert "['--lr', '0.1', '-m', 'x']" not in plain.stdout
    assert "'--lr', '0.1', '-m', 'x']" in plain.stdout
    assert watched.stdout == plain.stdout
    assert (watched.returncode, stderr) == (0, plain.stderr)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit('no such data')", 1),
        ("def broken(:\n", 1),
        (
            "def deep():\n    raise ValueError\n\n"
            "try:\n    deep()\nexcept ValueError as e:\n    raise KeyError(1) from e",
            1,
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(9)", -2),
        ("import sys; sys.excepthook = lambda *a: print('my hook', a[0].__name__); raise OSError(1)", 1),
    ],
    ids=["message", "syntax", "chained", "interrupt", "hook"],
)
def test_exit_code_and_traceback_are_the_scripts(python: Run, tmp_path: Path, source: str, code: int) -> None:
    if code < 0 and sys.platform == "win32":
        pytest.skip("no signals")
    script = tmp_path / "ends.py"
    script.write_text(source)
    (plain, watched), stderr = both(python, script)
    assert plain.returncode == watched.returncode == code
    assert stderr == plain.stderr
    assert watched.stdout == plain.stdout


def test_a_module_runs_as_python_runs_it(python: Run, tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 4")
    source = (
        "import sys\nfrom .part import VALUE\nprint(__name__, __package__, __spec__.name, sys.argv, VALUE, sys.path[0])"
    )
    (package / "__main__.py").write_text(source)
    (package / "tool.py").write_text(source)
    for name in ("pack", "pack.tool"):
        plain = python("-m", name, "--deep", "1")
        watched = python("-m", "placer", "run", "-m", name, "--deep", "1")
        assert plain.returncode == 0, plain.stderr
        assert watched.stdout == plain.stdout


@pytest.mark.parametrize(
    ("name", "module", "says"),
    [
        ("missing.py", False, "the script missing.py is not there"),
        (".", False, "the script . is a folder, not a script; for a package use -m"),
        ("no_such_module", True, "there is no module named no_such_module"),
        ("sys", True, "sys has no Python code to run"),
    ],
)
def test_what_cannot_run_is_said(name: str, module: bool, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(placer.TargetError, match=says):
        prepare(name, [], module=module)


def test_torch_is_loaded_when_the_script_loads_it(python: Run, tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(
        "import os, sys\nassert 'torch' not in sys.modules\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n"
        "print(torch.get_num_threads(), 'exec_module' in vars(torch.__spec__.loader))"
    )
    assert python("-m", "placer", "run", str(script)).stdout == "1 False\n"
