"""Options and helpers shared by subcommands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

#: Columns of a text that goes to a file or a pipe.
PIPED_WIDTH = 100


def device_option(text: str) -> Callable[[F], F]:
    """``--device``, repeatable."""
    return click.option("--device", "devices", multiple=True, metavar="D", help=f"{text} May be repeated.")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Wrong arguments, which the library reports as ValueError and TypeError, are wrong usage (exit code 2) here."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.UsageError(" ".join(str(error).split()), click.get_current_context(silent=True)) from error


def write_result(text: str, output: str | None) -> None:
    """To a file, or to stdout."""
    if output is None or output == "-":
        click.echo(text, nl=not text.endswith("\n"))
    else:
        Path(output).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        click.echo(f"placer: written to {output}", err=True)


def terminal(output: str | None) -> tuple[int, bool]:
    """Width of the text, and whether it may be coloured: only on a terminal, and not against ``NO_COLOR``."""
    if output is None and sys.stdout.isatty():
        return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns, not os.environ.get("NO_COLOR")
    return PIPED_WIDTH, False
