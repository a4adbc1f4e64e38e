"""Options and errors shared by subcommands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
