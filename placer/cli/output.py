"""All that the command line prints, made printable; where results go, and in which form: text, JSON or a page."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from placer.errors import PlacerError
from placer.files import check_free, write_new
from placer.printable import printable, printable_text

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


def result_options(*forms: str, text: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--format``, one of ``forms``, with a flag for json and html; and ``--output``.

    The command gets ``form`` and ``output``, checked before any work. Raises click.UsageError where two different forms
    are asked for, and PlacerError where a page needs a package that is missing, or the file cannot be written.
    """
    flags = [form for form in forms if form in ("json", "html")]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def checked(*, form: str | None, output: str | None, **options: Any) -> None:
            asked = [flag for flag in flags if options.pop(f"as_{flag}")]
            if form is not None and form not in asked:
                asked.append(form)
            if len(asked) > 1:
                raise click.UsageError(f"ask for one format: {' or '.join(asked)}", click.get_current_context())
            if asked == ["html"]:
                from placer.explanation import check_packages

                check_packages()
            if output is not None and output != "-":
                _check_new(Path(output))
            command(form=asked[0] if asked else "text", output=output, **options)

        for flag in flags:
            same = f"The same as --format {flag}."
            checked = click.option(f"--{flag}", f"as_{flag}", is_flag=True, help=same)(checked)
        kinds = click.Choice(forms)
        checked = click.option("--format", "form", type=kinds, help=f"{text}  [default: text]")(checked)
        where = click.Path(dir_okay=False)
        return click.option("--output", type=where, metavar="FILE", help="Write the result to a new FILE.")(checked)

    return add


def _check_new(path: Path) -> None:
    if not path.parent.is_dir():
        raise PlacerError(f"{path} cannot be written: there is no folder {path.parent}")
    check_free(path)


def write(result: Any, form: str, output: str | None, **options: Any) -> None:
    """What ``to_text``, ``to_json`` or another method for ``form`` makes of a result: to ``output``, or to stdout.

    A text is as wide as the terminal, and coloured there, but not against ``NO_COLOR``.
    """
    color = False
    if form == "text":
        options |= {"width": PIPED_WIDTH, "color": False}
        if output is None and sys.stdout.isatty():
            color = not os.environ.get("NO_COLOR")
            options |= {"width": shutil.get_terminal_size((PIPED_WIDTH, 24)).columns, "color": color}
    content = getattr(result, f"to_{form}")(**options)
    if output is None or output == "-":
        show_text(content, colored=color)
    else:
        write_new(Path(output), content.encode())
        say(f"written to {output}")
