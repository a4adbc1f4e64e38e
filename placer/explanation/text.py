"""An Explanation as text: the verdict first, then what it rests on."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placer.explanation.explanation import Explanation
from placer.explanation.layers import lines, tree
from placer.explanation.printable import printable
from placer.units import format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Op families and layers below this share of the time on every device are folded into one row.
SMALL = 0.01


def render(explanation: Explanation, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    from rich.text import Text

    explanation = Explanation.from_dict(printable(explanation.to_dict()))
    headline, *details = verdict(explanation)
    parts: list[Any] = [Text(headline, style="bold"), *details, workload_line(explanation.workload), ""]
    parts += [table for table in _tables(explanation) if table]
    if explanation.notes:
        parts += ["Notes", *(f"- {note}" for note in explanation.notes), ""]
    if explanation.machine:
        parts.append(f"Machine: {', '.join(machine_parts(explanation.machine))}.")
    return plain(parts, width=width, color=color)


def _tables(explanation: Explanation) -> Iterable[Table | None]:
    return _devices(explanation), _threads(explanation), _layers(explanation), _families(explanation)


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


def verdict(explanation: Explanation) -> list[str]:
    """Device, how much faster, how sure, the interval, break-even."""
    decision = explanation.decision
    reason = decision.reason.removeprefix(f"{decision.device}: ")
    if decision.speedup is not None and decision.confidence is not None:
        others = [name for name in explanation.devices if name != decision.device]
        than = others[0] if len(others) == 1 else "the next best"
        sure = sureness(decision.confidence)
        lines = [f"{decision.device}: {format_ratio(decision.speedup)} as fast as {than}, {sure} sure"]
        lines.append(f"{reason[:1].upper()}{reason[1:]}.")
    else:
        lines = [decision.reason]
    chosen = explanation.devices.get(decision.device)
    if chosen is not None:
        lines.append(
            f"With 90% probability a step takes between {format_seconds(chosen.low)} and {format_seconds(chosen.high)}."
        )
    if decision.break_even_steps is not None and decision.break_even_steps > 1:
        lines.append(f"The accelerator's one-time cost is repaid after {decision.break_even_steps:,} steps.")
    return lines


def sureness(confidence: float) -> str:
    """A probability that never claims certainty: ``97%``, ``>99%``."""
    return ">99%" if confidence > 0.99 else f"{confidence:.0%}"


def workload_line(workload: Mapping[str, Any]) -> str:
    """One line on what was priced."""
    parts = [str(workload.get("target", "model"))]
    inputs = workload.get("inputs") or []
    if inputs:
        parts.append("on " + ", ".join(str(item) for item in inputs))
    parts.append("training" if workload.get("mode") == "train" else "inference")
    if workload.get("optimizer"):
        parts.append(f"with {workload['optimizer']}")
    if workload.get("autocast"):
        parts.append(f"under autocast to {workload['autocast']}")
    if workload.get("steps"):
        parts.append(f"for {workload['steps']:,} steps")
    parameters = workload.get("parameters")
    text = " ".join(parts)
    if parameters is not None:
        text += f"; {parameters:,} parameters"
    return f"Workload: {text}; data on the {workload.get('data', 'host')}."


def _wrapped(line: str | Text, width: int) -> Text:
    """A line wrapped at spaces; list items hang."""
    from rich.text import Text

    text, style = (line, "") if isinstance(line, str) else (line.plain, line.style)
    hanging = "  " if text.startswith("- ") else ""
    return Text(textwrap.fill(text, width, subsequent_indent=hanging, break_on_hyphens=False), style=style)


def machine_parts(machine: Mapping[str, Any]) -> list[str]:
    """What the numbers were measured on, in a few words each."""
    parts = [str(machine.get("cpu", "unknown CPU"))]
    if machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    parts += [str(item.get("name", "accelerator")) for item in machine.get("accelerators") or []]
    if machine.get("torch"):
        parts.append(f"torch {machine['torch']}")
    if machine.get("calibrated"):
        parts.append(f"calibrated {machine['calibrated']}")
    return parts


def new_table(title: str, columns: Sequence[str]) -> Table:
    """An empty table: the first column is text, the others are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(columns[0], overflow="fold")
    for column in columns[1:]:
        table.add_column(column, justify="right", overflow="fold")
    return table


def _devices(explanation: Explanation) -> Table | None:
    """One row per device quantity, one column per device."""
    names = list(explanation.devices)
    if not names:
        return None
    rows = explanation.devices
    table = new_table("What a step is made of", ["", *names])
    for component in dict.fromkeys(key for row in rows.values() for key in row.components):
        table.add_row(component, *(format_seconds(rows[name].components.get(component, 0.0)) for name in names))
    table.add_row("step", *(format_seconds(rows[name].step_seconds) for name in names), style="bold")
    table.add_row("  90% from", *(format_seconds(rows[name].low) for name in names))
    table.add_row("  90% to", *(format_seconds(rows[name].high) for name in names))
    if any(row.one_time_seconds for row in rows.values()):
        table.add_row("once", *(format_seconds(rows[name].one_time_seconds) for name in names))
    if any(row.total_seconds is not None for row in rows.values()):
        table.add_row("in all", *(_seconds(rows[name].total_seconds) for name in names))
    memory = (format_bytes(rows[n].peak_memory_bytes) + ("" if rows[n].fits else " (too much)") for n in names)
    table.add_row("memory", *memory)
    table.add_row("calibrated", *(f"{rows[name].coverage:.0%}" for name in names))
    return table


def _threads(explanation: Explanation) -> Table | None:
    """One row per number of CPU threads that was compared."""
    tried = explanation.decision.thread_options
    if len(tried) < 2:
        return None
    table = new_table("A step on the CPU by number of threads", ["threads", "step", "90% from", "90% to"])
    for option in tried:
        times = _times((option.step_seconds, option.low, option.high))
        chosen = explanation.decision.device == "cpu" and option.threads == explanation.decision.threads
        table.add_row(f"{option.threads}", *times, style="bold" if chosen else None)
    return table


def _layers(explanation: Explanation) -> Table | None:
    """One column per phase when there is one device, one per device when there are several."""
    devices = list(explanation.devices)
    if not explanation.layers or not devices:
        return None
    phases = [p for p in ("forward", "loss", "backward", "optimizer") if any(r.phase == p for r in explanation.layers)]
    by_phase = len(devices) == 1 and len(phases) > 1
    columns = [*phases, "sum"] if by_phase else devices
    root = tree(explanation.layers, devices[0] if by_phase else None)
    table = new_table("Layers (a layer includes those below it)", ["layer", *columns, "share"])
    for line in lines(root, SMALL, add_columns=by_phase):
        cells = [line.node.seconds.get(name, 0.0) for name in (phases if by_phase else devices)]
        if by_phase:
            cells.append(sum(cells))
        table.add_row("  " * line.depth + line.node.label, *_times(cells), f"{line.share:.0%}")
    return table


def _families(explanation: Explanation) -> Table | None:
    """Op families with their weakest source; small ones are folded."""
    devices = list(explanation.devices)
    if not explanation.ops or not devices:
        return None
    totals = {name: sum(row.devices.get(name, 0.0) for row in explanation.ops) for name in devices}
    families: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    guessed: dict[str, float] = {}
    for row in explanation.ops:
        sums = families.setdefault(row.family, dict.fromkeys(devices, 0.0))
        counts[row.family] = counts.get(row.family, 0) + row.count
        for name in devices:
            sums[name] += row.devices.get(name, 0.0)
        if row.source != "calibrated":
            guessed[row.family] = guessed.get(row.family, 0.0) + sum(row.devices.values())
    large = {f: s for f, s in families.items() if any(totals[n] and s[n] >= SMALL * totals[n] for n in devices)}
    table = new_table("Operators", ["family", "calls", *devices, "not calibrated"])
    for family, sums in sorted(large.items(), key=lambda item: -max(item[1].values())):
        share = guessed.get(family, 0.0) / max(sum(sums.values()), 1e-300)
        cells = (format_seconds(sums[name]) for name in devices)
        table.add_row(family, f"{counts[family]:,}", *cells, f"{share:.0%}" if share >= 0.005 else "-")
    rest = [family for family in families if family not in large]
    if rest:
        cells = (format_seconds(sum(families[family][name] for family in rest)) for name in devices)
        everything = sum(sum(families[family].values()) for family in rest)
        share = sum(guessed.get(family, 0.0) for family in rest) / max(everything, 1e-300)
        calls = sum(counts[family] for family in rest)
        table.add_row("(other families)", f"{calls:,}", *cells, f"{share:.0%}" if share >= 0.005 else "-")
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _times(values: Iterable[float]) -> list[str]:
    return [format_seconds(value) for value in values]
