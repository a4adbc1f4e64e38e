"""A fleet as one HTML page without external parts: the answer, time against money, and every machine."""

from __future__ import annotations

from placer.explanation import page_template, workload_line
from placer.fleets import plot
from placer.fleets.data import FleetData
from placer.fleets.lines import has_trades, lines, of_how_many
from placer.fleets.text import columns, details, headline, remarks

_MONEY = (
    "The line joins the machines that no other one betters in time and money together. Bars are 90 % intervals of the "
    "time, and with it of the money."
)
_TIME = "Bars are times, lines on them 90 % intervals."


def render(fleet: FleetData) -> str:
    """The page. Raises PlacerError without jinja2 or vl-convert."""
    every = lines(fleet.rows)
    heads, *cells = columns(fleet, every)
    of = f"a {fleet.unit}" if fleet.count is None else of_how_many(fleet)
    priced = plot.has_prices(every)
    page: str = page_template("fleet.html.j2", "placer.fleets").render(
        headline=headline(fleet),
        details=details(fleet),
        workload=workload_line(fleet.workload),
        plot_title=f"Time and money of {of_how_many(fleet)}" if priced else f"Time of {of}",
        plot_words=_MONEY if priced else _TIME,
        plot=plot.money(fleet, every) if priced else plot.times(fleet, every),
        heads=[head.replace("\n", " ") for head in heads],
        rows=[
            {"cells": row, "best": line.row is fleet.best, "pareto": line.row.pareto and has_trades(fleet)}
            for line, row in zip(every, cells, strict=True)
        ],
        notes=[*remarks(fleet, every), *fleet.notes],
    )
    return page + "\n"
