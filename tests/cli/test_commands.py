"""The group itself, and the command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from placer import __version__
from placer.cli.group import _COMMANDS

Run = Callable[..., Result]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=100, env=variables, check=False)


#: Asks for every page of help, and for a GPU, in one process: nothing that was loaded for one is gone for the next.
LIGHT = """
import runpy, sys
for arguments in {asked!r}:
    sys.argv = ["placer", *arguments]
    try:
        runpy.run_module("placer", run_name="__main__")
    except SystemExit as stop:
        assert not stop.code, arguments
    heavy = {{"torch", "sklearn", "rich", "transformers", *(["numpy"] if "--help" in arguments else [])}}
    assert not heavy & set(sys.modules), (arguments, heavy & set(sys.modules))
"""


def test_help_and_the_catalog_import_no_torch() -> None:
    pages = [["--help"], *([name, "--help"] for name in _COMMANDS), ["profile", "show", "--help"]]
    done = process("-c", LIGHT.format(asked=[*pages, ["gpus", "T4"]]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: placer") == len(pages)
    assert "Tesla T4" in done.stdout


def test_an_interrupt_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from placer.calibration import runner

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "calibrate", interrupted)
    assert "run the same command again" in run("calibrate", code=1).stderr


def test_as_a_process_results_go_to_stdout_and_errors_to_stderr(tmp_path: Path) -> None:
    assert process("-m", "placer", "--version").stdout == f"placer, version {__version__}\n"
    path = process("-m", "placer", "profile", "path", PLACER_HOME=str(tmp_path))
    assert (path.returncode, path.stderr, path.stdout.startswith(str(tmp_path))) == (0, "", True)
    missing = process("-m", "placer", "explain", "nowhere.py:net", "--batch", "3,4", PLACER_HOME=str(tmp_path))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.splitlines() == [
        "placer: there is no file nowhere.py; TARGET is package.module:attribute, file.py:attribute, "
        "hf:NAME or file.pt2"
    ]
