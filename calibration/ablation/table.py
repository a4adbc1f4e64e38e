"""The table of an ablation: what predictions lose, or gain, without each mechanism, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from placer.calibration.ablation.mechanism import Change, Mechanism, Outcome, Values, change, median_error, p90_error

#: The columns, and how they are aligned.
_HEAD = "| without | lines | steps | median error | p90 | wrong decisions |", "|---|--:|--:|--:|--:|--:|"


@dataclass(frozen=True)
class Row:
    """What switching one mechanism off changes over ``steps`` steps; ``lines`` are those of its code."""

    name: str
    lines: int
    steps: int
    median: Change
    p90: Change
    wrong: Change

    @property
    def matters(self) -> bool:
        """Whether anything changes beyond the noise."""
        return self.median.beyond_noise or self.p90.beyond_noise or self.wrong.beyond_noise


def row(mechanism: Mechanism, before: Outcome, after: Outcome) -> Row:
    """The row of a mechanism, given what the same steps come to with it (``before``) and without it."""
    return Row(
        mechanism.name, mechanism.lines, len(before.errors), change(median_error, before.errors, after.errors),
        change(p90_error, before.errors, after.errors), change(wrong_share, before.wrong, after.wrong),
    )  # fmt: skip


def wrong_share(wrong: Values) -> Values:
    """The share of decisions that are wrong, along the last axis."""
    return np.asarray(np.mean(wrong, axis=-1))


def markdown(rows: Iterable[Row]) -> Iterator[str]:
    """The table, line by line: changes in percentage points with their 90 % intervals, in bold beyond the noise."""
    yield from _HEAD
    for each in rows:
        cells = (each.name, f"{each.lines:,}", f"{each.steps:,}", *map(points, (each.median, each.p90, each.wrong)))
        yield f"| {' | '.join(cells)} |"


def summary(outcome: Outcome) -> str:
    """What steps come to with all mechanisms, in a line."""
    return (
        f"{len(outcome.errors):,} steps: median error {median_error(outcome.errors):.1%}, "
        f"p90 {p90_error(outcome.errors):.1%}, wrong decisions {wrong_share(outcome.wrong):.1%}"
    )


def points(found: Change) -> str:
    """A change in percentage points, such as ``**+3.1 (2.0 to 4.4)**``; ``0`` where nothing changes at all."""
    if found.value == found.low == found.high == 0.0:
        return "0"
    value, low, high = (100.0 * each for each in (found.value, found.low, found.high))
    text = f"{value:+.1f} ({low:.1f} to {high:.1f})".replace("-0.0", "0.0").replace("+0.0", "0.0")
    return f"**{text}**" if found.beyond_noise and not text.startswith("0.0") else text
