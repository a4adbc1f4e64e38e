"""The tables of a step's op time: by layer, and by op family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.explanation.data import ExplanationData
from placer.explanation.layers import Line, Node, gathered, lines, tree
from placer.explanation.provenance import headings
from placer.explanation.tables import SMALL, bar_width, columns_width, drawn_bar, new_table, time_cell, with_bars

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Most rows of the table of layers. Layers below ``SMALL`` of the time are folded; where that leaves more rows, those
#: below the larger shares, one after the other.
MOST_ROWS = 40
LARGER = (0.02, 0.03, 0.05, 0.1, 0.2)


def layers(explanation: ExplanationData, width: int) -> Table | None:
    """One column per phase when there is one device, one per device with its bars when there are several."""
    devices = list(explanation.devices)
    if not explanation.layers or not devices:
        return None
    phases = [p for p in ("forward", "loss", "backward", "optimizer") if any(r.phase == p for r in explanation.layers)]
    by_phase = len(devices) == 1 and len(phases) > 1
    numbers = [*phases, "sum"] if by_phase else devices
    root = gathered(tree(explanation.layers, devices[0] if by_phase else None))
    shown = _fitting(root, by_phase)
    labels = max(len("  " * line.depth + line.node.label) for line in shown)
    drawn = ["sum"] if by_phase else devices
    called = headings(explanation.devices)
    heads, above = [called.get(name, name) for name in numbers], [called.get(name, name) for name in drawn]
    room = bar_width(width, labels + columns_width(heads) + 8, len(drawn))
    table = new_table("Layers (a layer includes those below it)", ["layer", *with_bars(heads, above, room), "share"])
    for line in shown:
        seconds = dict(line.node.seconds)
        unsure = dict(line.node.guessed)
        whole = dict(root.seconds)
        if by_phase:
            seconds["sum"], unsure["sum"] = sum(seconds.values()), sum(unsure.values())
            whole["sum"] = sum(whole.values())
        cells: list[str | Text] = []
        for name in numbers:
            cells.append(time_cell(seconds.get(name, 0.0), unsure.get(name, 0.0)))
            if name in drawn and room:
                cells.append(drawn_bar(seconds.get(name, 0.0), whole.get(name, 0.0), room, drawn.index(name)))
        table.add_row("  " * line.depth + line.node.label, *cells, f"{line.share:.0%}")
    return table


def _fitting(root: Node, by_phase: bool) -> list[Line]:
    """The rows to show: the share below which layers are folded grows until there are at most ``MOST_ROWS``."""
    found: list[Line] = []
    for small in (SMALL, *LARGER):
        found = list(lines(root, small, add_columns=by_phase))
        if len(found) <= MOST_ROWS:
            break
    return found


def families(explanation: ExplanationData, width: int) -> Table | None:
    """One row per op family with its bars and the share that is a guess; small families are folded."""
    devices = list(explanation.devices)
    if not explanation.ops or not devices:
        return None
    totals = {name: sum(row.devices.get(name, 0.0) for row in explanation.ops) for name in devices}
    sums: dict[str, dict[str, float]] = {}
    guessed: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    for row in explanation.ops:
        counts[row.family] = counts.get(row.family, 0) + row.count
        for into, added in ((sums, row.devices), (guessed, row.guessed)):
            family = into.setdefault(row.family, dict.fromkeys(devices, 0.0))
            for name in devices:
                family[name] += added.get(name, 0.0)
    large = [f for f, s in sums.items() if any(totals[n] and s[n] >= SMALL * totals[n] for n in devices)]
    large.sort(key=lambda family: -max(sums[family].values()))
    rows = {family: [family] for family in large}
    if rest := [family for family in sums if family not in large]:
        rows["(other families)"] = rest
    called = list(headings(explanation.devices).values())
    room = bar_width(width, max(map(len, rows)) + 11 + columns_width(called) + 8, len(devices))
    table = new_table("Operators", ["family", "calls", *with_bars(called, called, room), "guess"])
    for label, members in rows.items():
        cells: list[str | Text] = []
        share = 0.0
        for number, name in enumerate(devices):
            seconds = sum(sums[family][name] for family in members)
            doubt = sum(guessed[family][name] for family in members)
            share = max(share, doubt / seconds if seconds else 0.0)
            cells.append(time_cell(seconds, doubt))
            if room:
                cells.append(drawn_bar(seconds, totals[name], room, number))
        cells.append(f"{share:.0%}" if share >= 0.005 else "-")
        table.add_row(label, f"{sum(counts[f] for f in members):,}", *cells)
    return table
