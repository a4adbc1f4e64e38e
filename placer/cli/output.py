"""All that the command line prints, made printable; where results go, and in which form: text, JSON or a page."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from placer.printable import printable, printable_text

if TYPE_CHECKING:
    from placer.explanation import Explanation, Sweep

#: Columns of a text that goes to a file or a pipe.
PIPED_WIDTH = 100


def show_text(text: str, *, err: bool = False, colored: bool = False) -> None:
    """To stdout or stderr, with a line end. Only a ``colored`` text keeps codes of colours."""
    click.echo(printable_text(text.removesuffix("\n"), colored=colored), err=err)


def show_line(line: str) -> None:
    """One line to stdout, whatever the names in it hold."""
    show_text(printable(line))


def say(line: str) -> None:
    """One line on stderr."""
    show_text(printable(f"placer: {line}"), err=True)


def write_result(text: str, output: str | None) -> None:
    """To the file ``output``, or to stdout (None or ``-``)."""
    if output is None or output == "-":
        show_text(text, colored=terminal(output)[1])
    else:
        Path(output).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        say(f"written to {output}")


def terminal(output: str | None = None) -> tuple[int, bool]:
    """Width of the text, and whether it may be coloured: only on a terminal, and not against ``NO_COLOR``."""
    if output is None and sys.stdout.isatty():
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns, not os.environ.get("NO_COLOR")
    return PIPED_WIDTH, False


def rendered(explanation: Explanation, form: str, output: str | None, sweep: Sweep | None = None) -> str:
    """An explanation as ``form`` (text, json or html) for ``output``; ``sweep`` adds its plot to the page."""
    if form == "json":
        return explanation.to_json()
    if form == "html":
        return explanation.to_html(sweep)
    width, color = terminal(output)
    return explanation.to_text(width, color=color)


def rendered_sweep(sweep: Sweep, form: str, output: str | None) -> str:
    """A sweep as ``form`` (text or json) for ``output``."""
    from placer.explanation import render_sweep

    if form == "json":
        return sweep.to_json()
    width, color = terminal(output)
    return render_sweep(sweep, width=width, color=color)


def rendered_decisions(form: str, output: str | None) -> str:
    """The last decisions on this machine as ``form`` (text, json or html) for ``output``."""
    from placer.cli import decisions

    found = decisions.last_decisions()
    if form == "json":
        return decisions.to_json(found)
    if form == "html":
        return decisions.newest(found).to_html()
    width, color = terminal(output)
    return decisions.to_text(found, width=width, color=color)
