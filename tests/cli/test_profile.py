from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from placer import profile
from placer.profile.profile import Profile

Run = Callable[..., Result]


def test_show_is_short_and_all_is_not(run: Run, calibrated: Profile) -> None:
    more = (dataclasses.replace(calibrated.fits[0], threads=calibrated.fits[0].threads + 1), *calibrated.fits)
    profile.save(dataclasses.replace(calibrated, fits=more))
    assert run("profile", "path").stdout == f"{profile.default_path()}\n"
    short, everything = run("profile", "show").stdout, run("profile", "show", "--all").stdout
    assert calibrated.fingerprint["cpu"] in short
    assert calibrated.created in short
    assert "stale" not in short
    assert short.count("\ncpu, ") == 1
    assert "per forward op" not in short
    assert "placer profile show --all" in short
    assert everything.count("\ncpu, ") == 2
    assert "10.0 µs per forward op" in everything


def test_export_and_import(run: Run, calibrated: Profile, tmp_path: Path) -> None:
    file = tmp_path / "lab server.json"
    run("profile", "export", str(file))
    assert profile.load(file).samples == calibrated.samples
    assert "--force" in run("profile", "export", str(file), code=1).stderr
    run("profile", "export", str(file), "--force")
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    assert "is no profile" in run("profile", "export", str(notes), "--force", code=1).stderr
    assert notes.read_text() == "precious"
    assert "not a profile name" in run("profile", "import", str(file), code=2).stderr
    assert run("profile", "import", str(file), "--name", "lab").stdout == "lab\n"
    assert "--force" in run("profile", "import", str(file), "--name", "lab", code=1).stderr
    listed = run("profile", "list").stdout
    assert "lab\timported\n" in listed
    assert f"{profile.default_path().stem}\tthis machine\n" in listed
    assert calibrated.fingerprint["cpu"] in run("profile", "show", "lab").stdout


@pytest.mark.parametrize("arguments", [("export",), ("import",), ("burn",), ("show", "..")])
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    run("profile", *arguments, code=2)


def test_what_is_no_profile(run: Run, tmp_path: Path) -> None:
    assert "run: placer calibrate" in run("profile", "show", code=1).stderr
    file = tmp_path / "other.json"
    file.write_text('{"a": 1}')
    assert "other.json" in run("profile", "import", str(file), code=1).stderr
    assert "imported" not in run("profile", "list").stdout
