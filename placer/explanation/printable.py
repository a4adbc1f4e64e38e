"""Names come from the user's model, from profiles and from the history: on a terminal they must stay text."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> Any:
    """Plain containers with every character that steers a terminal (escape sequences, line ends) replaced."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(printable, value))
    return value
