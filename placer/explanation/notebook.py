"""What a notebook shows of an answer: a card of HTML with inline styles, in the colours of the page around it."""

from __future__ import annotations

from html import escape
from typing import Any

from placer.explanation.data import ExplanationData
from placer.explanation.sections import steps
from placer.explanation.sentences import headline
from placer.explanation.short import answer_rows
from placer.printable import printable

#: Nothing has a colour of its own: all is the text's, more or less of it, which dark and light pages set.
_CARD = (
    "font-family:system-ui,sans-serif;font-size:14px;line-height:1.45;max-width:58em;padding:.6em .9em;"
    "border:1px solid rgba(128,128,128,.4);border-radius:6px"
)
_TABLE = "border-collapse:collapse;margin:.5em 0;color:inherit;font-size:inherit"
_CELL = "padding:.15em .9em .15em 0;text-align:left;border:none;background:none;white-space:pre"
_TRACK = "position:relative;height:1.1em;width:15em"
_BAR = "position:absolute;left:0;top:.1em;bottom:.1em;border-radius:2px;background:currentColor"
_SPAN = "position:absolute;top:50%;height:0;border-top:1px solid currentColor"
_END = "position:absolute;top:25%;bottom:25%;width:0;border-left:1px solid currentColor"
#: How much of the text's colour the bar of the choice has, and those of others.
_CHOSEN, _OTHER = 0.55, 0.22


def card(explanation: ExplanationData) -> str:
    """The verdict, a bar with its interval for each device, where the choice turns, and what the numbers rest on."""
    rows = zip(steps(explanation).rows, explanation.devices, strict=True)
    bars = "".join(_bar(explanation, row, name) for row, name in rows)
    table = f'<table style="{_TABLE}">{bars}</table>' if bars else ""
    lines = "".join(
        f'<div style="display:flex"><div style="flex:0 0 5.5em;opacity:.65">{row.word}</div>'
        f"<div>{_text(row.text)}</div></div>"
        for row in answer_rows(explanation)
    )
    first = f'<div style="font-weight:600">{_text(headline(explanation))}</div>'
    return f'<div style="{_CARD}">{first}{table}{lines}</div>'


def reason_card(device: str, reason: str) -> str:
    """A choice without a prediction: the device, and why."""
    return f'<div style="{_CARD}"><b>{_text(device)}</b><div>{_text(reason.removeprefix(f"{device}: "))}</div></div>'


def _bar(explanation: ExplanationData, row: Any, name: str) -> str:
    """A row of the table; times are shares of the longest interval's end."""
    cost, devices = explanation.devices[name], explanation.devices
    whole = max(device.high for device in devices.values()) or 1.0
    chosen = name == explanation.decision.device
    low, step, high, reach = (
        f"{100.0 * seconds / whole:.2f}%" for seconds in (cost.low, cost.step_seconds, cost.high, cost.high - cost.low)
    )
    marks = (
        f'<div style="{_BAR};width:{step};opacity:{_CHOSEN if chosen else _OTHER}"></div>'
        f'<div style="{_SPAN};left:{low};width:{reach}"></div>'
        f'<div style="{_END};left:{low}"></div><div style="{_END};left:{high}"></div>'
    )
    weight = ";font-weight:600" if chosen else ""
    called, time, beside = map(_text, row)
    cells = (
        (weight, called),
        (";text-align:right", time),
        ("", f'<div style="{_TRACK}">{marks}</div>'),
        (";opacity:.75", beside),
    )
    drawn = "".join(f'<td style="{_CELL}{more}">{cell}</td>' for more, cell in cells)
    return f'<tr style="background:none">{drawn}</tr>'


def _text(value: str) -> str:
    """A text that is no markup, whatever names it holds."""
    return escape(printable(str(value)))
