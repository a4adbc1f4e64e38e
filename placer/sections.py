"""Sections, of which everything that placer says is made, and their text: tables with bars, facts, lists, and words.

``placer.explanation`` draws the same sections as a page, and one as the card of a notebook.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from placer.printable import printable

#: Columns before the sentence of a fact, which has a word in them: more where words are longer.
INDENT = 10
#: Characters of a bar: it is not drawn where there is room for less than the first, and never longer than the second.
SHORTEST_BAR, LONGEST_BAR = 4, 20
#: No column is made narrower than this.
NARROWEST = 3
#: Codes of a terminal: bold, and the colours of the devices' bars, in order: readable on dark and on light.
_BOLD, _COLOURS = 1, (36, 35, 32, 34)
#: The blank between a number and its unit: no line ends there.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|min|h|days|[kMGT]?B|[mµ]?J|k?Wh)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Cell:
    """A time in a table, with a bar that is its ``share`` of the column's whole, in the colour of device ``number``."""

    text: str
    share: float
    number: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Fact:
    """A sentence with the word before it. A ``command`` stays on one line, to be copied."""

    word: str
    text: str
    command: bool = False


@dataclass(frozen=True)
class Section:
    """A part of an answer: a title, a table, facts, a list, and words below them. One of a title alone is empty.

    ``strong`` rows of the table are bold. Words stand in its first column and in those of ``left`` (-1 is the last).
    ``words`` above, ``plots`` (a heading and an SVG each) and what their ``colours`` stand for are for a page.
    """

    title: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Cell | str]] = ()
    strong: Sequence[int] = ()
    left: Sequence[int] = ()
    facts: Sequence[Fact] = ()
    items: Sequence[str] = ()
    after: Sequence[str] = ()
    words: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    plots: Sequence[tuple[str, str]] = ()

    @property
    def word_columns(self) -> set[int]:
        """The columns of words, by their numbers."""
        count = len(self.rows[0]) if self.rows else 1
        return {0, *(number % count for number in self.left)}


def render(sections: Iterable[Section], *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide, but for commands; with ANSI codes only where ``color`` asks for them."""
    blocks: list[list[str]] = []
    for section in sections:
        blocks += _blocks(section, width, color)
    texts = ["\n".join(map(str.rstrip, block)) for block in blocks]
    return "\n\n".join(texts) + "\n"


def _blocks(section: Section, width: int, color: bool) -> list[list[str]]:
    """The parts of a section between which a line is left blank."""
    title = [_styled(line, _BOLD, color) for line in wrapped(section.title, width)]
    items = [line for item in section.items for line in wrapped(f"- {item}", width, indent=2)]
    after = [line for words in section.after for line in wrapped(words, width)]
    drawn = [list(_table(section, width, color))] if section.rows else []
    if section.facts:
        indent = max(INDENT, *(len(fact.word) + 2 for fact in section.facts))
        drawn.append([line for fact in section.facts for line in _fact(fact, indent, width)])
    if drawn:
        blocks = [title, *drawn, items, after]
    else:  # a title stands right above a list or words
        blocks = [[*title, *(items or after)], after if items else []] if items or after else []
    return [block for block in blocks if block]


def _fact(fact: Fact, indent: int, width: int) -> list[str]:
    line = f"{fact.word:<{indent}}{fact.text}"
    return [str(printable(line))] if fact.command else wrapped(line, width, indent=indent)


def wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Printable lines of at most ``width`` columns, those after the first indented. No number leaves its unit."""
    whole = _BEFORE_UNIT.sub(_NO_BREAK, printable(text))
    lines = textwrap.wrap(whole, width, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


@dataclass
class _Column:
    """Words or bars of a table, by row, with the code of a terminal for each (0: none)."""

    head: str
    texts: list[str]
    codes: list[int]
    left: bool
    width: int = 0

    def folded(self, text: str) -> list[str]:
        """A cell, or the head, in lines of the width of the column."""
        return [text] if len(text) <= self.width else textwrap.wrap(text, self.width, break_on_hyphens=False)

    def padded(self, text: str, code: int, color: bool) -> str:
        padding = " " * (self.width - len(text))
        drawn = _styled(text, code, color)
        return drawn + padding if self.left else padding + drawn


def _table(section: Section, width: int, color: bool) -> Iterator[str]:
    """The lines of a table; beside each column with bars there is one for these, where they have room."""
    margin, between = (" ", "   ") if section.heads else ("", "  ")
    columns = _columns(section, width - len(margin), len(between))
    rows = []
    for row in range(len(section.rows)):
        texts = [column.texts[row] for column in columns]
        codes = [column.codes[row] for column in columns]
        rows.append((texts, codes))
    if section.heads:
        rows.insert(0, ([column.head for column in columns], [0] * len(columns)))
    for number, (texts, codes) in enumerate(rows):
        cells = [column.folded(text) for column, text in zip(columns, texts, strict=True)]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            parts = zip(columns, line, codes, strict=True)
            yield margin + between.join(column.padded(text, code, color) for column, text, code in parts)
        if section.heads and not number:
            yield margin + "─" * (sum(column.width for column in columns) + len(between) * (len(columns) - 1))


def _columns(section: Section, room: int, between: int) -> list[_Column]:
    """The columns of a table with their widths, in ``room`` columns of the terminal."""
    bold = [_BOLD if number in section.strong else 0 for number in range(len(section.rows))]
    columns, bars = [], dict[int, _Column]()
    for number, cells in enumerate(zip(*section.rows, strict=True)):
        head = str(printable(section.heads[number])) if section.heads else ""
        column = _Column(head, [str(printable(str(cell))) for cell in cells], bold, number in section.word_columns)
        column.width = max(map(len, (head, *column.texts)))
        columns.append(column)
        devices = [cell.number if isinstance(cell, Cell) else None for cell in cells]
        if any(device is not None for device in devices):
            bars[number] = _Column("", [], [_COLOURS[(device or 0) % len(_COLOURS)] for device in devices], left=True)
    left_over = room - sum(column.width + between for column in columns) + between
    bar_width = min(left_over // max(len(bars), 1) - between, LONGEST_BAR)
    while left_over < 0 and max(column.width for column in columns) > NARROWEST:
        max(columns, key=attrgetter("width")).width -= 1
        left_over += 1
    if bar_width < SHORTEST_BAR:
        return columns
    for number in sorted(bars, reverse=True):
        times = [row[number] for row in section.rows]
        bars[number].texts = [bar(time.share, bar_width) if isinstance(time, Cell) else "" for time in times]
        bars[number].width = max(map(len, bars[number].texts))
        columns.insert(number + 1, bars[number])
    return columns


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0 to 1) times ``width`` characters, to an eighth of one; a share above 0 is never empty."""
    if share <= 0.0:
        return ""
    eighths = max(round(min(share, 1.0) * width * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _styled(text: str, code: int, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and code and text else text
