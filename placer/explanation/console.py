"""Lines and rich tables as plain text, and loading rich without a side effect."""

from __future__ import annotations

import io
import random
import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from placer.printable import printable, printable_text

if TYPE_CHECKING:
    from rich.text import Text

#: The blank between a number and its unit: no line ends there.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|[kMGT]?B)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def load_rich() -> None:
    """Import rich and keep the state of Python's random numbers, from which its first import draws.

    Call it before any other import of rich: printing a report must not change how the user's network is initialised.
    """
    state = random.getstate()
    try:
        import rich.style  # noqa: F401
    finally:
        random.setstate(state)


def plain(parts: Iterable[Any], *, width: int, color: bool = False) -> str:
    """Lines and rich tables as text of at most ``width`` columns, without trailing blanks.

    Lines and whatever a table holds as a ``str`` are made printable here. A cell that is a rich ``Text`` is placer's
    own, and stays as it is.
    """
    load_rich()
    from rich.console import Console
    from rich.text import Text

    class Printable(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    file = io.StringIO()
    console = Printable(
        file=file, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False,
        emoji=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    for part in parts:
        if isinstance(part, (str, Text)):
            console.print(_wrapped(part, width))
        else:
            console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines()) + "\n"


def _wrapped(line: str | Text, width: int) -> Text:
    """A line wrapped at spaces; list items hang."""
    from rich.text import Text

    text, style = (line, "") if isinstance(line, str) else (line.plain, line.style)
    hanging = "  " if text.startswith("- ") else ""
    text = _BEFORE_UNIT.sub(_NO_BREAK, text)
    filled = textwrap.fill(text, width, subsequent_indent=hanging, break_on_hyphens=False)
    return Text(printable_text(filled.replace(_NO_BREAK, " ")), style=style)
