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
_TABLE = "border-collapse:collapse;margin:.5em 0;color:inherit;font-size:inherit"
_CELL = "padding:.15em .9em .15em 0;text-align:left;border:none;background:none;white-space:pre"
_TRACK = "position:relative;height:1.1em;width:15em"
_BAR = "position:absolute;left:0;top:.1em;bottom:.1em;border-radius:2px;background:currentColor"
#: How much of the text's colour the bar of the choice has, and those of others.
_CHOSEN, _OTHER = 0.55, 0.22


def card(section: Section) -> str:
    """A section: its title, its table with bars, its facts, and the words below them."""
    rows = "".join(_row(row, number in section.strong) for number, row in enumerate(section.rows))
    table = f'<table style="{_TABLE}">{rows}</table>' if rows else ""
    facts = "".join(
        f'<div style="display:flex"><div style="flex:0 0 5.5em;opacity:.65">{_text(fact.word)}</div>'
        f"<div>{_text(fact.text)}</div></div>"
        for fact in section.facts
    )
    words = "".join(f"<div>{_text(line)}</div>" for line in section.after)
    title = f'<div style="font-weight:600">{_text(section.title)}</div>'
    return f'<div style="{_CARD}">{title}{table}{facts}{words}</div>'


def _row(row: Sequence[Cell | str], chosen: bool) -> str:
    style = f"{_CELL};font-weight:600" if chosen else _CELL
    drawn = []
    for cell in row:
        drawn.append(f'<td style="{style}">{_text(str(cell))}</td>')
        if isinstance(cell, Cell):
            bar = f"{_BAR};width:{100.0 * cell.share:.2f}%;opacity:{_CHOSEN if chosen else _OTHER}"
            drawn.append(f'<td style="{_CELL}"><div style="{_TRACK}"><div style="{bar}"></div></div></td>')
    return f'<tr style="background:none">{"".join(drawn)}</tr>'


def _text(value: str) -> str:
    """A text that is no markup, whatever names it holds."""
    return escape(printable(value))
