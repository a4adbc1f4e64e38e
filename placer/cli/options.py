"""Options and errors shared by subcommands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def device_option(text: str) -> Callable[[F], F]:
    """``--device``, repeatable."""
    return click.option("--device", "devices", multiple=True, metavar="D", help=f"{text} May be repeated.")


def amounts_option(name: str, unit: str, text: str) -> Callable[[F], F]:
    """``--price cpu=0.10`` and ``--watts cpu=65``, repeatable."""
    return click.option(f"--{name}", multiple=True, metavar=f"DEVICE={unit}", help=f"{text} May be repeated.")


def parse_amounts(name: str, given: Sequence[str], what: str = "device") -> dict[str, float] | None:
    """``("cpu=0.10", "cuda=2.50")`` -> ``{"cpu": 0.1, "cuda": 2.5}``; None of none. A wrong text raises ValueError.

    ``what`` is what the names are of.
    """
    found: dict[str, float] = {}
    example = "cpu" if what == "device" else "T4"
    for text in given:
        device, _, number = text.rpartition("=")
        try:
            found[device.strip()] = float(number)
        except ValueError:
            found = {"": 0.0}
        if not device.strip() or not 0.0 < found.get(device.strip(), 0.0) < math.inf:
            raise ValueError(f"--{name} {text!r} is not a {what} and a positive number, like --{name} {example}=0.10")
    return found or None


@contextmanager
def usage_errors() -> Iterator[None]:
    """Wrong arguments, which the library reports as ValueError and TypeError, are wrong usage (exit code 2) here."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise click.UsageError(" ".join(str(error).split()), click.get_current_context(silent=True)) from error
