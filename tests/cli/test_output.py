"""Results go to a new file: nothing is overwritten, and what cannot be written is refused before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import Result

from placer.cli import explain, fleet
from placer.files import write_new

Run = Callable[..., Result]
#: Commands with a file for their result, and what stands in it then.
WRITING = (
    ("explain", "--output"), ("explain", "NETS", "--batch", "2,84", "--output"),
    ("explain", "NETS", "--batch", "2,84", "--json", "--output"),
    ("explain", "NETS", "--batch", "2,84", "--sweep", "batch=1:4", "--output"),
    ("fleet", "NETS", "--batch", "2,84", "--output"), ("doctor", "--output"),
    ("validate", "--against", "RECORD", "--output"), ("validate", "--published", "--output"),
    ("profile", "export", "--force"), ("calibrate", "--output"),
)  # fmt: skip


def no_work(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("work was begun")


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
@pytest.mark.usefixtures("calibrated")
def test_a_file_of_the_users_is_not_overwritten(
    arguments: tuple[str, ...], run: Run, nets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    monkeypatch.setattr(explain, "work", no_work)
    monkeypatch.setattr(fleet, "work", no_work)
    words = {"NETS": f"{nets}:net", "RECORD": str(tmp_path / "record.json")}
    said = run(*(words.get(word, word) for word in arguments), str(notes), code=1).stderr
    assert "notes.txt exists" in said
    assert "name another file, or remove it" in said
    assert notes.read_text() == "precious"


@pytest.mark.usefixtures("calibrated")
def test_an_empty_file_stdout_and_a_pipe_are_written(run: Run, nets: str, tmp_path: Path) -> None:
    asked = ("explain", f"{nets}:net", "--batch", "2,84", "--json", "--output")
    made = tmp_path / "made by mktemp"
    made.touch()
    run(*asked, str(made))
    assert made.read_text().startswith("{")
    assert run(*asked, "-").stdout.startswith("{")
    if os.name != "posix":
        return
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_new(pipe, b"result")
    assert os.read(reader, 10) == b"result"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("module", ["jinja2", "vl_convert"])
@pytest.mark.parametrize("command", ["explain", "fleet"])
def test_a_missing_package_is_said_before_any_work(
    command: str, module: str, run: Run, nets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("jinja2", "vl_convert"):  # the other one is there
        monkeypatch.setitem(sys.modules, name, pytest)
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]  # as where it is not installed
    monkeypatch.setattr(explain, "work", no_work)
    monkeypatch.setattr(fleet, "work", no_work)
    said = run(command, f"{nets}:net", "--batch", "4,84", "--html", code=1).stderr
    assert "the html report needs" in said
    assert "pip install 'torch-placer[report]'" in said
