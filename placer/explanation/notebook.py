"""What a notebook shows of an answer: a card of HTML with inline styles, in the colours of the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from placer.printable import printable
from placer.sections import Cell, Section

#: Nothing has a colour of its own: all is the text's, more or less of it, which dark and light pages set.
_CARD = (
    "font-family:system-ui,sans-serif;font-size:14px;line-height:1.45;max-width:58em;padding:.6em .9em;"
    "border:1px solid rgba(128,128,128,.4);border-radius:6px"
)
#: A row, and its cells: a name, a time, a bar, a remark. In a narrow notebook, the last two stand below the first two.
_ROW = "display:flex;flex-wrap:wrap;align-items:center;column-gap:.9em;padding:.1em 0"
_NAME = "flex:1 1 12em;max-width:20em;overflow-wrap:anywhere"
_TIME = "flex:0 0 5em;text-align:right"
_TRACK = "flex:2 1 5em"
_REMARK = "flex:2 1 11em;white-space:pre-wrap"
_BAR = "height:.8em;border-radius:2px;background:currentColor"
#: How much of the text's colour the bar of the choice has, and those of others.
_CHOSEN, _OTHER = 0.85, 0.5


def card(section: Section) -> str:
    """A section: its title, its bars, its facts, and the words below them."""
    rows = "".join(_row(row, number in section.strong) for number, row in enumerate(section.rows))
    bars = f'<div style="margin:.5em 0">{rows}</div>' if rows else ""
    facts = "".join(
        f'<div style="display:flex"><div style="flex:0 0 5.5em;opacity:.65">{_text(fact.word)}</div>'
        f'<div style="min-width:0;overflow-wrap:anywhere">{_text(fact.text)}</div></div>'
        for fact in section.facts
    )
    words = "".join(f"<div>{_text(line)}</div>" for line in section.after)
    title = f'<div style="font-weight:600">{_text(section.title)}</div>'
    return f'<div style="{_CARD}">{title}{bars}{facts}{words}</div>'


def _row(row: Sequence[Cell | str], chosen: bool) -> str:
    """The name of a device, its time with a bar, and a remark."""
    name, time, remark = row
    share = time.share if isinstance(time, Cell) else 0.0
    bar = f"{_BAR};width:{100.0 * share:.2f}%;opacity:{_CHOSEN if chosen else _OTHER}"
    return (
        f'<div style="{_ROW}{";font-weight:600" if chosen else ""}"><div style="{_NAME}">{_text(str(name))}</div>'
        f'<div style="{_TIME}">{_text(str(time))}</div><div style="{_TRACK}"><div style="{bar}"></div></div>'
        f'<div style="{_REMARK}">{_text(str(remark))}</div></div>'
    )


def _text(value: str) -> str:
    """A text that is no markup, whatever names it holds."""
    return escape(printable(value))
