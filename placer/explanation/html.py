"""An Explanation as one HTML file without external parts. Needs jinja2 (``pip install placer[report]``)."""

from __future__ import annotations

from typing import Any

from placer.errors import PlacerError
from placer.explanation.explanation import Explanation
from placer.explanation.layers import lines, tree
from placer.explanation.tables import SMALL
from placer.explanation.verdict import machine_parts, verdict, workload_line
from placer.units import format_bytes, format_seconds

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>placer: {{ headline }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
.bar { background: #4a7ebb; height: .6rem; display: inline-block; vertical-align: middle; }
.guess { color: #a15c00; }
</style></head><body>
<h1>{{ headline }}</h1>
{% for line in details %}<p>{{ line }}</p>
{% endfor %}<p>{{ workload }}</p>
<h2>What a step is made of</h2>
<table><tr><th></th>{% for name in devices %}<th>{{ name }}</th>{% endfor %}</tr>
{% for label, cells in made_of %}<tr><td>{{ label }}</td>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% if threads %}<h2>A step on the CPU by number of threads</h2>
<table><tr><th>threads</th><th>step</th><th>90% from</th><th>90% to</th></tr>
{% for row in threads %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endif %}<h2>Layers</h2>
<table><tr><th>layer</th>{% for name in devices %}<th>{{ name }}</th>{% endfor %}<th>share</th></tr>
{% for row in layers %}<tr><td style="padding-left: {{ row.indent }}rem">{{ row.label }}</td>
{% for cell in row.cells %}<td>{{ cell }}</td>{% endfor %}
<td><span class="bar" style="width: {{ row.bar }}rem"></span> {{ row.share }}</td></tr>
{% endfor %}</table>
<h2>Operators</h2>
<table><tr><th>op</th><th>family</th><th>calls</th>{% for name in devices %}<th>{{ name }}</th>{% endfor %}
<th>source</th></tr>
{% for row in ops %}<tr><td>{{ row.op }}</td><td>{{ row.family }}</td><td>{{ row.count }}</td>
{% for cell in row.cells %}<td>{{ cell }}</td>{% endfor %}
<td{% if row.source != "calibrated" %} class="guess"{% endif %}>{{ row.source }}</td></tr>
{% endfor %}</table>
{% if notes %}<h2>Notes</h2><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
<p>{{ machine }}</p>
</body></html>
"""


def render(explanation: Explanation) -> str:
    """The page. Raises PlacerError without jinja2."""
    try:
        import jinja2
    except ImportError:
        raise PlacerError("the html report needs jinja2; run: pip install 'placer[report]'") from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    headline, *details = verdict(explanation)
    devices = list(explanation.devices)
    page = environment.from_string(_TEMPLATE).render(
        headline=headline,
        details=details,
        workload=workload_line(explanation.workload),
        devices=devices,
        made_of=_made_of(explanation),
        threads=[
            (row.threads, *map(format_seconds, (row.step_seconds, row.low, row.high)))
            for row in explanation.decision.thread_options
        ],
        layers=_layers(explanation, devices),
        ops=[
            {**vars(row), "cells": [format_seconds(row.devices.get(n, 0.0)) for n in devices]}
            for row in explanation.ops
        ],
        notes=explanation.notes,
        machine=", ".join(machine_parts(explanation.machine)) if explanation.machine else "",
    )
    return page + "\n"


def _made_of(explanation: Explanation) -> list[tuple[str, list[str]]]:
    rows = list(explanation.devices.values())
    names = dict.fromkeys(key for row in rows for key in row.components)
    parts = [(name, [format_seconds(row.components.get(name, 0.0)) for row in rows]) for name in names]
    return [
        *parts,
        ("step", [format_seconds(row.step_seconds) for row in rows]),
        ("90% interval", [f"{format_seconds(row.low)} to {format_seconds(row.high)}" for row in rows]),
        ("once", [format_seconds(row.one_time_seconds) for row in rows]),
        ("memory", [format_bytes(row.peak_memory_bytes) + ("" if row.fits else " (too much)") for row in rows]),
        ("calibrated", [f"{row.coverage:.0%}" for row in rows]),
    ]


def _layers(explanation: Explanation, devices: list[str]) -> list[dict[str, Any]]:
    root = tree(explanation.layers, None)
    return [
        {
            "indent": 0.6 + 1.2 * line.depth,
            "label": line.node.label,
            "cells": [format_seconds(line.node.seconds.get(name, 0.0)) for name in devices],
            "bar": round(6.0 * min(line.share, 1.0), 2),
            "share": f"{line.share:.0%}",
        }
        for line in lines(root, SMALL / 10, add_columns=False)
    ]
