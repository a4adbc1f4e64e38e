"""An Explanation as text: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placer.explanation import breakdown, costs, job_parts, step_tables
from placer.explanation.console import load_rich, plain
from placer.explanation.data import ExplanationData
from placer.explanation.provenance import legend
from placer.explanation.tables import MARK, shows_guess
from placer.explanation.verdict import (
    advice_lines,
    bottleneck_lines,
    bounds_lines,
    machine_parts,
    verdict,
    workload_line,
)

#: What the part of a step called dispatch is: on the CPU alone, and where an accelerator is among the devices.
_DISPATCH_CPU = "dispatch is the framework's own time: Python, autograd, the optimizer's loop."
_DISPATCH = "dispatch is the framework's own time on the CPU; on an accelerator, the device waiting for launches."
_MARKED = f"{MARK} more than a tenth of it is a guess: operations that were not measured in that range."


def render(explanation: ExplanationData, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    load_rich()
    from rich.text import Text

    headline, *details = verdict(explanation)
    parts: list[Any] = [Text(headline, style="bold")]
    if (compared := step_tables.steps(explanation, width)) is not None:
        parts += ["", compared, ""]
    parts += [*details, workload_line(explanation.workload), ""]
    if costs.told(explanation):
        parts += [costs.table(explanation), costs.ENERGY, ""]
    if (of_job := job_parts.table(explanation, width)) is not None:
        parts += [of_job, *filter(None, [job_parts.apart_line(explanation)]), ""]
    drawn = (
        breakdown.layers(explanation, width),
        breakdown.families(explanation, width),
        step_tables.made_of(explanation, width),
        step_tables.threads(explanation),
    )
    body = [table for table in drawn if table is not None]
    parts += body
    if explanation.devices:
        only_cpu = all(name.partition("@")[0] == "cpu" for name in explanation.devices)
        parts += [_DISPATCH_CPU if only_cpu else _DISPATCH, *bounds_lines(explanation), ""]
    if any(map(shows_guess, body)):
        parts += [_MARKED, ""]
    if told := legend(explanation.devices):
        parts += [*told, ""]
    parts += _section("Where most of it goes", bottleneck_lines(explanation))
    parts += _section("What would make it faster", advice_lines(explanation))
    parts += _section("Notes", explanation.notes)
    if explanation.machine:
        parts.append(f"Machine: {', '.join(machine_parts(explanation.machine))}.")
    return plain(parts, width=width, color=color)


def _section(title: str, lines: Sequence[str]) -> list[Any]:
    """A title and its list; nothing where there is no line."""
    from rich.text import Text

    return [Text(title, style="bold"), *(f"- {line}" for line in lines), ""] if lines else []
