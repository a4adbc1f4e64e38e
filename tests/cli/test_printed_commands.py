"""Every command that placer prints, or that its pages name in passing, is one that works.

They are read from the source: all texts of placer and of calibration but docstrings. ``test_docs.py`` runs those that
stand in blocks of the pages.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from placer import machine, profile
from placer.cli import main
from placer.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "placer").rglob("*.py"), *(ROOT / "calibration").rglob("*.py")])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONTEXT = click.Context(main)
COMMANDS = {name: command for name in main.list_commands(CONTEXT) if (command := main.get_command(CONTEXT, name))}
PRINTED = re.compile(rf"\bplacer (?=(?:{'|'.join(COMMANDS)})\b)([^\n`]+)")
#: What stands for something of the reader's, and an example of it. Braces are an expression of an f-string.
EXAMPLES = {
    "FILE.py:MODEL": "calibration/suite/conv1d.py:Conv1dRegressor",
    "file.py:attribute": "calibration/suite/conv1d.py:Conv1dRegressor",
    "net.py:Net": "calibration/suite/conv1d.py:Conv1dRegressor",
    "FILE": "new.json", "DIR": "../shared/gpu-data", "NAME": "T4", "{path}": "new.json",
    "{quoted}": "new.json", "{wanted}": "cpu",
}  # fmt: skip
#: Commands that measure: only their options are checked.
MEASURES = ("calibrate", "validate")
#: Options that a page names in passing, without the value that they take.
UNFINISHED = ("--what-if", "--against", "--output")


def docstrings(tree: ast.Module) -> set[int]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body)
    return {id(first.value) for first in found if isinstance(first, ast.Expr)}


def texts(source: Path) -> Iterator[str]:
    """The strings of a file; of one with expressions in it, these in braces."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
                for part in node.values if isinstance(part, (ast.Constant, ast.FormattedValue))
            ]  # fmt: skip
            skipped |= {id(part) for part in node.values}
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def helps(command: click.Command) -> Iterator[str]:
    """What ``--help`` says of a command and those under it: the docstrings of their functions."""
    yield command.help or ""
    if isinstance(command, click.Group):
        for name in command.list_commands(CONTEXT):
            inner = command.get_command(CONTEXT, name)
            if inner is not None:
                yield from helps(inner)


def command_in(text: str) -> list[str]:
    """The arguments with which a sentence goes on, up to what is prose: ``calibrate --quick`` of "calibrate --quick.
    It takes 15 s".
    """
    words = re.findall(r"\{[^}]*\}|[^\s\"']+|\"[^\"]*\"", text)
    current: click.Command = main
    found: list[str] = []
    while words:
        word = words.pop(0)
        bare = word.rstrip(".,;:)").strip('"')
        if isinstance(current, click.Group):
            inner = current.get_command(CONTEXT, bare)
            if inner is None:
                break
            current = inner
        elif bare.startswith("--"):
            found.append(bare)
            option = next((p for p in current.params if bare in p.opts), None)
            if bare != word or option is None or (isinstance(option, click.Option) and option.is_flag):
                bare = ""
            elif words:
                word = words.pop(0)
                bare = word.rstrip(".,;:)").strip('"')
        elif not re.search(r"[A-Z{./:]", bare):
            break
        found += [EXAMPLES.get(bare, bare)] if bare else []
        if word.rstrip(".,;:)") != word:
            break
    return found


def printed() -> list[Any]:
    found: dict[tuple[str, ...], str] = {}
    for source in SOURCES:
        for text in texts(source):
            for match in PRINTED.finditer(text):
                found.setdefault(tuple(command_in(match[1])), f"{source.relative_to(ROOT)}")
    for text in helps(main):
        for match in PRINTED.finditer(text):
            found.setdefault(tuple(command_in(match[1])), "help")
    found.pop(("profile",), None)  # "is no placer profile"
    for page in PAGES:
        for span in re.findall(r"(?<!`)`(placer [^`\n]+)`(?!`)", page.read_text(encoding="utf-8")):
            match = PRINTED.fullmatch(span)
            if match is not None and match[1] not in COMMANDS and not span.endswith(UNFINISHED):  # a name is no advice
                found.setdefault(tuple(command_in(match[1])), f"{page.relative_to(ROOT)}")
    return [pytest.param(list(words), id=f"{shlex.join(words)} in {place}") for words, place in found.items()]


@pytest.fixture
def here(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibrated machine, in a folder like the checkout."""
    (tmp_path / "calibration").symlink_to(ROOT / "calibration")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("arguments", printed())
def test_a_command_that_is_printed_works(arguments: list[str], here: None, run: Callable[..., Result]) -> None:
    unknown = [word for word in arguments if "{" in word]
    assert not unknown, f"say in EXAMPLES what {unknown} could be"
    try_out(arguments, run)


def try_out(arguments: list[str], run: Callable[..., Result]) -> None:
    """Run the command; of one that measures, and of one that writes, only its options are read."""
    name, *others = arguments
    if name in MEASURES or (name == "profile" and others and others[0] in ("import", "export")):
        COMMANDS[name].make_context(name, others)
        return
    run(*arguments)


@pytest.mark.parametrize("state", ["calibrated", "stale", "missing", "a GPU that nobody calibrated"])
def test_commands_that_doctor_prints_work(
    state: str, here: None, calibrated: Profile, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are printed, names and all."""
    if state == "stale":
        profile.save(replace(calibrated, fingerprint={**calibrated.fingerprint, "torch": "1.0"}))
    elif state == "missing":
        profile.default_path().unlink()
    elif state == "a GPU that nobody calibrated":
        profile.save(replace(calibrated, fits=tuple(fit for fit in calibrated.fits if fit.device == "cpu")))
        gpu = {"device": "cuda", "name": "Some 'GPU' 1", "memory_bytes": 10**9}
        monkeypatch.setattr(machine, "describe_accelerators", lambda: [gpu])
    found = [command_in(match[1]) for match in PRINTED.finditer(run("doctor").stdout)]
    assert found
    for arguments in found:
        try_out(arguments, run)


def test_commands_are_found_in_sentences() -> None:
    assert command_in("calibrate again to go on") == ["calibrate"]
    assert command_in("calibrate --output FILE) or folder (PLACER_HOME)") == ["calibrate", "--output", "new.json"]
    assert command_in("gpus lists those that it knows") == ["gpus"]
    assert command_in('explain net.py:Net --batch 2,3 --what-if "T4"; more') == [
        "explain", EXAMPLES["net.py:Net"], "--batch", "2,3", "--what-if", "T4",
    ]  # fmt: skip
    assert command_in("calibrate --quick: It takes 15 s") == ["calibrate", "--quick"]
    assert command_in("profile show --all") == ["profile", "show", "--all"]
    assert command_in("doctor --no-such: runs") == ["doctor", "--no-such"]
    assert len(printed()) > 20
