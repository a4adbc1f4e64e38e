"""Makes names safe to print: those of a user's model, a profile or the history must not steer the terminal."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> Any:
    """The value with every unprintable character in its texts (escape sequences, line ends) replaced."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(printable, value))
    return value
