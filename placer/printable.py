"""Makes text safe to print: the names of a model, a file, a profile or the history must not steer the terminal."""

from __future__ import annotations

import re
from typing import Any

#: What a text is made of besides its names: line ends, tabs, and the codes that colour it.
_LAYOUT, _COLOURED = re.compile(r"([\n\t])"), re.compile(r"([\n\t]|\x1b\[[\d;]*m)")


def printable(value: Any) -> Any:
    """The value with every unprintable character in its texts (escape sequences, line ends) replaced."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(printable, value))
    return value


def printable_text(text: str, *, colored: bool = False) -> str:
    """A whole text: as ``printable``, but for its line ends, tabs, and the colours of one that is ``colored``."""
    parts = (_COLOURED if colored else _LAYOUT).split(text)
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(parts))


def _shown(character: str) -> str:
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
