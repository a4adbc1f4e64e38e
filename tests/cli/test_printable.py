"""No name that a command line prints can steer the terminal, or begin a line of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from explained import explained

from placer import profile
from placer.cli import main, output
from placer.decision import history
from placer.pricing import Prediction
from placer.profile import Profile

HOSTILE = "\x1b]0;owned\x07\x9b31m\nfake: line\u202e"
EPYC = ("--profile", "amd-epyc-2-core")


def test_hostile_names(
    runner: CliRunner, nets: str, tmp_path: Path, handmade_profile: Profile, make_prediction: Callable[..., Prediction]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        f"    def forward(self, x): raise RuntimeError({HOSTILE!r})\n"
        f"Net.__name__ = {HOSTILE!r}\n"
    )
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"name": HOSTILE, "vcpus": 4, "gpu": "T4"}, {"name": "x", "vcpus": 8}]))
    fleet = ("fleet", f"{nets}:net", "--batch", "4,84", *EPYC, "--nodes", str(nodes))
    path_of_profile = str(profile.save(handmade_profile, tmp_path / f"{HOSTILE}.json"))
    profile.save(handmade_profile, profile.profiles_folder() / f"{HOSTILE}.json")
    found = {name: make_prediction(name, 1e-3) for name in ("cpu", HOSTILE)}
    kept = explained(found, {"target": HOSTILE, "mode": HOSTILE, "inputs": [HOSTILE]}).to_dict()
    history.record({"time": HOSTILE, "kind": "decision", "explanation": {**kept, "choice": HOSTILE}})
    for arguments in (
        # what was typed
        ("explain", f"{HOSTILE}.py:net", "--batch", "3,4"),
        ("explain", f"--{HOSTILE}"),
        (f"x{HOSTILE}",),
        ("explain", "net.py:net", "--batch", HOSTILE),
        # what is in a file
        ("explain", f"{path}:Net", "--batch", "3,4", *EPYC),
        fleet,
        (*fleet, "--price", "nobody=1"),
        (*fleet, "--output", str(tmp_path / f"{HOSTILE}.txt")),
        ("profile", "show", path_of_profile),
        ("profile", "list"),
        ("explain",),
    ):
        # It is on a terminal, whose colours are kept.
        result = runner.invoke(main, list(arguments), prog_name="placer", color=True)
        text = result.stdout + result.stderr
        assert "owned" in text, arguments
        assert all(character.isprintable() or character in "\n\t" for character in text), repr(text)
        assert not any(line.startswith("fake") for line in text.splitlines())


def test_colours_are_kept_on_a_terminal_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_text("\x1b[1mbold\x1b[0m \x1b[2J\n", colored=True)
    assert capsys.readouterr().out == "bold \ufffd[2J\n"  # click takes colours away where there is no terminal
    assert output.printable_text("\x1b[1mbold\x1b[0m\x1b[2J", colored=True) == "\x1b[1mbold\x1b[0m\ufffd[2J"
    assert output.printable_text("\x1b[1mbold", colored=False) == "\ufffd[1mbold"
