"""Every command that placer prints, or that its pages name in passing, has the options that it is given.

``tests/test_docs.py`` runs those that stand in blocks of the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from placer.cli import main

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("placer", "calibration") for path in (ROOT / folder).rglob("*.py")]
FILES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)
#: A command, and what follows it up to the end of a sentence, a string or a span of code.
PRINTED = re.compile(rf"\bplacer ({'|'.join(NAMES)})\b((?:[^\n`;,()\".]|\.(?=\S))*)")


def wrong(name: str, rest: str) -> list[str]:
    """The options in ``rest`` that the command does not have."""
    command = main.get_command(CONTEXT, name)
    words = rest.split()
    if isinstance(command, click.Group):
        command = command.get_command(CONTEXT, words[0]) if words else command
    if command is None:  # "is no placer profile" is prose
        return []
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word.rstrip(":'") not in known]


def test_options_that_are_printed_exist() -> None:
    found = 0
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for name, rest in PRINTED.findall(text):
            if name == "run":  # what follows a script is the script's
                continue
            found += "--" in rest
            assert not wrong(name, rest), f"{path}: placer {name}{rest}"
    assert found > 50
