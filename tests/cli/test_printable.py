"""No name that a command line prints can steer the terminal, or begin a line of its own."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from explained import explained

import placer.cli
from placer import profile
from placer.cli import main, output
from placer.decision import history
from placer.pricing import Prediction
from placer.profile import Profile

Run = Callable[..., Result]
HOSTILE = "\x1b]0;owned\x07\x9b31m\nfake: line\u202e"
EPYC = ("--profile", "amd-epyc-2-core")


@pytest.fixture
def printed(runner: CliRunner) -> Callable[..., str]:
    """All that a command prints. It is on a terminal, whose colours are kept."""

    def invoke(*arguments: str) -> str:
        result = runner.invoke(main, list(arguments), prog_name="placer", color=True)
        text = result.stdout + result.stderr
        assert all(character.isprintable() or character in "\n\t" for character in text), repr(text)
        assert not any(line.startswith("fake") for line in text.splitlines())
        return text

    return invoke


def test_only_one_module_prints() -> None:
    """What it prints is made printable: see ``output.show_text``."""
    for source in Path(placer.cli.__file__).parent.glob("*.py"):
        if source.name == "output.py":
            continue
        tree = ast.parse(source.read_text(encoding="utf-8"))
        used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.Name))}
        assert not used & {"click.echo", "click.secho", "print", "sys.stdout", "sys.stderr"}, source.name


def test_errors_name_what_was_typed(printed: Callable[..., str]) -> None:
    assert "owned" in printed("explain", f"{HOSTILE}.py:net", "--batch", "3,4")
    assert "owned" in printed("explain", f"--{HOSTILE}")
    assert "owned" in printed(f"x{HOSTILE}")
    assert "owned" in printed("explain", "net.py:net", "--batch", HOSTILE)


def test_errors_name_what_is_in_a_file(printed: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        f"    def forward(self, x): raise RuntimeError({HOSTILE!r})\n"
        f"Net.__name__ = {HOSTILE!r}\n"
    )
    assert "owned" in printed("explain", f"{path}:Net", "--batch", "3,4", *EPYC)


def test_machines_and_files(printed: Callable[..., str], nets: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps([{"name": HOSTILE, "vcpus": 4, "gpu": "T4"}, {"name": "x", "vcpus": 8}]))
    asked = ("fleet", f"{nets}:net", "--batch", "4,84", *EPYC, "--nodes", str(path))
    assert "owned" in printed(*asked)
    assert "owned" in printed(*asked, "--price", "nobody=1")
    assert "owned" in printed(*asked, "--output", str(tmp_path / f"{HOSTILE}.txt"))


def test_profiles(printed: Callable[..., str], handmade_profile: Profile, tmp_path: Path) -> None:
    paths = [str(profile.save(handmade_profile, tmp_path / f"{HOSTILE}{number}.json")) for number in range(2)]
    assert "owned" in printed("profile", "show", paths[0])
    assert "owned" in printed("profile", "show", *paths)
    profile.save(handmade_profile, profile.profiles_folder() / f"{HOSTILE}.json")
    assert "owned" in printed("profile", "list")


def test_the_history(printed: Callable[..., str], make_prediction: Callable[..., Prediction]) -> None:
    found = {name: make_prediction(name, 1e-3) for name in ("cpu", HOSTILE)}
    kept = explained(found, {"target": HOSTILE, "mode": HOSTILE, "inputs": [HOSTILE]}).to_dict()
    history.record({"time": HOSTILE, "kind": "decision", "explanation": {**kept, "choice": HOSTILE}})
    assert "owned" in printed("explain")


def test_colours_are_kept_on_a_terminal_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_text("\x1b[1mbold\x1b[0m \x1b[2J\n", colored=True)
    assert capsys.readouterr().out == "bold \ufffd[2J\n"  # click takes colours away where there is no terminal
    assert output.printable_text("\x1b[1mbold\x1b[0m\x1b[2J", colored=True) == "\x1b[1mbold\x1b[0m\ufffd[2J"
    assert output.printable_text("\x1b[1mbold", colored=False) == "\ufffd[1mbold"
