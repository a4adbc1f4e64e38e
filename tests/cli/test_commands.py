"""The group itself, ``calibrate`` and ``validate``, and the command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from placer import __version__
from placer.cli import main
from placer.cli.group import _COMMANDS

Run = Callable[..., Result]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "placer", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        check=False,
    )


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
    program = LIGHT.format(asked=[*pages, ["gpus", "T4"]])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: placer") == len(pages)
    assert "Tesla T4" in done.stdout


def test_an_unexpected_error_is_one_line_unless_asked_for(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    from placer import profile

    def broken() -> Path:
        raise KeyError("surprise")

    monkeypatch.setattr(profile, "default_path", broken)
    assert "KeyError: 'surprise' (unexpected; PLACER_DEBUG=1 shows where, " in run("profile", "path", code=1).stderr
    monkeypatch.setenv("PLACER_DEBUG", "1")
    assert isinstance(CliRunner().invoke(main, ["profile", "path"]).exception, KeyError)


def test_an_interrupt_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from placer.calibration import runner

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "calibrate", interrupted)
    assert "run the same command again" in run("calibrate", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("calibrate", "--budget", "0"), "--budget"),
        (("calibrate", "--budget", "soon"), "--budget"),
        (("calibrate", "--device", "cuda:66"), "'cuda:66' is not on this machine"),
        (("predict",), "predict"),
        (("validate", "--suite", "huge"), "--suite"),
        *(
            (("validate", "--threads", text), "--threads takes numbers of at least 1")
            for text in ("0", "1,,2", "99999")
        ),
        (("validate", "--published", "--suite", "quick"), "leave out --suite"),
        (("validate", "--published", "--steps", "0"), "--steps"),
        (("validate", "--steps", "10"), "say --published"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...], says: str) -> None:
    assert says in " ".join(run(*arguments, code=2).stderr.split())


def test_what_is_not_there_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from placer.calibration.lab.published import table

    assert "placer calibrate" in run("validate", code=1).stderr
    monkeypatch.setattr(table, "DATA", tmp_path)
    assert "no published measurements at" in run("validate", "--published", code=1).stderr
    assert "give the file accounts.jsonl" in run("validate", "--accounts", str(tmp_path / "no.jsonl"), code=1).stderr
    assert "nowhere" in run("validate", "--published", "--profile", "nowhere", code=1).stderr


def test_as_a_process_results_go_to_stdout_and_errors_to_stderr(tmp_path: Path) -> None:
    assert process("--version").stdout == f"placer, version {__version__}\n"
    path = process("profile", "path", PLACER_HOME=str(tmp_path))
    assert (path.returncode, path.stderr) == (0, "")
    assert path.stdout.startswith(str(tmp_path))
    missing = process("explain", "nowhere.py:net", "--batch", "3,4", PLACER_HOME=str(tmp_path))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.splitlines() == [
        "placer: there is no file nowhere.py; TARGET is package.module:attribute, file.py:attribute, "
        "hf:NAME or file.pt2"
    ]
