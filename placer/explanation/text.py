"""An Explanation as text: the verdict first, then what it rests on."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from placer.explanation import breakdown, tables
from placer.explanation.explanation import Explanation
from placer.explanation.load_rich import load_rich
from placer.explanation.printable import printable
from placer.explanation.verdict import advice_lines, bottleneck_lines, machine_parts, verdict, workload_line

if TYPE_CHECKING:
    from rich.text import Text

#: The blank between a number and its unit: no line ends there.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|[kMGT]?B)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def render(explanation: Explanation, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    load_rich()
    from rich.text import Text

    explanation = Explanation.from_dict(printable(explanation.to_dict()))
    headline, *details = verdict(explanation)
    parts: list[Any] = [Text(headline, style="bold")]
    if (compared := tables.steps(explanation, width)) is not None:
        parts += ["", compared, ""]
    parts += [*details, workload_line(explanation.workload), ""]
    drawn = (
        breakdown.layers(explanation, width),
        breakdown.families(explanation, width),
        tables.made_of(explanation, width),
        tables.threads(explanation),
    )
    if any(name.partition("@")[0] != "cpu" for name in explanation.devices):
        gloss = "dispatch is the framework's own time on the CPU; on an accelerator, the device waiting for launches."
    else:
        gloss = "dispatch is the framework's own time: Python, autograd, the optimizer's loop."
    body = [table for table in drawn if table is not None]
    parts += [*body, *([gloss, ""] if explanation.devices else [])]
    if tables.MARK in plain(body, width=width):
        parts += [
            f"{tables.MARK} more than a tenth of it is a guess: operations that were not measured in that range.",
            "",
        ]
    if explanation.bottlenecks:
        parts += [
            Text("Where most of it goes", style="bold"),
            *(f"- {line}" for line in bottleneck_lines(explanation)),
            "",
        ]
    if explanation.advice:
        parts += [
            Text("What would make it faster", style="bold"),
            *(f"- {line}" for line in advice_lines(explanation)),
            "",
        ]
    if explanation.notes:
        parts += [Text("Notes", style="bold"), *(f"- {note}" for note in explanation.notes), ""]
    if explanation.machine:
        parts.append(f"Machine: {', '.join(machine_parts(explanation.machine))}.")
    return plain(parts, width=width, color=color)


def plain(parts: Iterable[Any], *, width: int, color: bool = False) -> str:
    """Lines and rich tables as text of at most ``width`` columns, without trailing blanks."""
    from rich.console import Console
    from rich.text import Text

    file = io.StringIO()
    console = Console(
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
    return Text(filled.replace(_NO_BREAK, " "), style=style)
