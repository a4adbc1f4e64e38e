"""Options and errors shared by subcommands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from placer.profile import Profile

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


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


def checked(check: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What ``check`` makes of arguments. Those that it refuses with a ValueError are wrong usage.

    It does no more than check: what the command then does with them raises its own errors.
    """
    try:
        return check(*arguments, **options)
    except ValueError as error:
        raise click.UsageError(" ".join(str(error).split()), click.get_current_context(silent=True)) from error


def loaded(source: str | None, *, samples: bool = True) -> Profile:
    """This machine's profile (None), or that of a file or a name."""
    from placer import profile

    checked(profile.locate, source)
    return profile.load(source, samples=samples)
