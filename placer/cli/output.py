"""All that the command line prints, made printable; where results go, and in which form: text, JSON or a page."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from placer.errors import PlacerError
from placer.files import check_free, write_new
from placer.printable import printable, printable_text

F = TypeVar("F", bound=Callable[..., Any])

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


def terminal(output: str | None = None) -> tuple[int, bool]:
    """Width of the text, and whether it may be coloured: only on a terminal, and not against ``NO_COLOR``."""
    if output is None and sys.stdout.isatty():
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns, not os.environ.get("NO_COLOR")
    return PIPED_WIDTH, False


def write_result(text: str, output: str | None) -> None:
    """To the file ``output``, or to stdout (None or ``-``)."""
    if output is None or output == "-":
        show_text(text, colored=terminal(output)[1])
    else:
        write_new(Path(output), (text if text.endswith("\n") else text + "\n").encode())
        say(f"written to {output}")


def write(result: Any, form: str, output: str | None) -> None:
    """What ``to_text``, ``to_json`` or another method for ``form`` makes of a result, to ``output``."""
    width, color = terminal(output)
    text = result.to_text(width=width, color=color) if form == "text" else getattr(result, f"to_{form}")()
    write_result(text, output)


def new_file(context: click.Context, parameter: click.Parameter, output: str | None) -> str | None:
    """The file of ``--output``. Raises PlacerError, before any work, where something is there or its folder is not."""
    if output is not None and output != "-":
        path = Path(output)
        if not path.parent.is_dir():
            raise PlacerError(f"{path} cannot be written: there is no folder {path.parent}")
        check_free(path)
    return output


def page_is_possible(context: click.Context, parameter: click.Parameter, asked: Any) -> Any:
    """``--format`` or ``--html``. Raises PlacerError before any work where a page needs a package that is missing."""
    if asked is True or asked == "html":
        from placer.explanation import check_packages

        check_packages()
    return asked


def result_options(*forms: str, text: str = "") -> Callable[[F], F]:
    """``--format``, one of ``forms``, and ``--output``."""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--output",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                callback=new_file,
                help="Write to FILE instead of stdout.",
            ),
            click.option(
                "--format",
                "form",
                type=click.Choice(forms),
                default="text",
                show_default=True,
                callback=page_is_possible,
                help=text,
            ),
        ):
            command = option(command)
        return command

    return add


def form_flags(command: F) -> F:
    """``--json`` and ``--html``, for ``--format``; see ``chosen_form``."""
    for form, check in (("html", page_is_possible), ("json", None)):
        same = f"The same as --format {form}."
        command = click.option(f"--{form}", f"as_{form}", is_flag=True, callback=check, help=same)(command)
    return command


def chosen_form(context: click.Context, form: str, *, as_json: bool, as_html: bool) -> str:
    """What ``--format`` or a flag asks for. Raises click.UsageError where they ask for different ones."""
    form_given = context.get_parameter_source("form") is not click.core.ParameterSource.DEFAULT
    asked = [*([form] if form_given else []), *(["json"] if as_json else []), *(["html"] if as_html else [])]
    if len(set(asked)) > 1:
        raise click.UsageError(f"ask for one format: {' or '.join(asked)}", context)
    return asked[0] if asked else form
