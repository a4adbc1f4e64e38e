"""An Explanation as text: the verdict first, then the tables it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placer.decision import MANY, TIME, Point, trade
from placer.explanation.console import (
    COLOURS,
    GUESS,
    MARK,
    SMALL,
    bar,
    bar_width,
    columns_width,
    drawn_bar,
    load_rich,
    new_table,
    plain,
    shows_guess,
    time_cell,
    with_bars,
)
from placer.explanation.data import ExplanationData
from placer.explanation.layers import Line, Node, gathered, lines, tree
from placer.explanation.sentences import (
    ONE_TIME,
    PARTS,
    advice_lines,
    all_calibrated,
    apart_line,
    bottleneck_lines,
    bounds_lines,
    fastest,
    first_step,
    headings,
    kind,
    legend,
    machine_parts,
    shown_parts,
    step_parts,
    verdict,
    workload_line,
)
from placer.units import format_bytes, format_count, format_dollars, format_duration, format_joules, format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: What the part of a step called dispatch is: on the CPU alone, and where an accelerator is among the devices.
_DISPATCH_CPU = "dispatch is the framework's own time: Python, autograd, the optimizer's loop."
_DISPATCH = "dispatch is the framework's own time on the CPU; on an accelerator, the device waiting for launches."
_MARKED = f"{MARK} more than a tenth of it is a guess: operations that were not measured in that range."


def render_text(explanation: ExplanationData, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    load_rich()
    from rich.text import Text

    headline, *details = verdict(explanation)
    parts: list[Any] = [Text(headline, style="bold")]
    if (compared := steps_table(explanation, width)) is not None:
        parts += ["", compared, ""]
    parts += [*details, workload_line(explanation.workload), ""]
    if costs_told(explanation):
        parts += [costs_table(explanation), ENERGY, ""]
    if (of_job := job_table(explanation, width)) is not None:
        parts += [of_job, *filter(None, [apart_line(explanation)]), ""]
    drawn = (
        layers_table(explanation, width),
        families_table(explanation, width),
        made_of_table(explanation, width),
        threads_table(explanation),
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


def steps_table(explanation: ExplanationData, width: int) -> Table | None:
    """One row per device, its step as a bar on a common scale; None for a single device."""
    from rich.table import Table
    from rich.text import Text

    if len(explanation.devices) < 2:
        return None
    longest = max(row.step_seconds for row in explanation.devices.values())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    called = headings(explanation.devices)
    room = bar_width(width - 40, max(map(len, called.values())), 1)
    for number, (name, row) in enumerate(explanation.devices.items()):
        drawn = Text(bar(row.step_seconds / longest if longest else 0.0, room), style=COLOURS[number % len(COLOURS)])
        mark = MARK if 1.0 - row.coverage > GUESS else ""
        cells = (mark + format_seconds(row.step_seconds), f"{format_seconds(row.low)} to {format_seconds(row.high)}")
        style = "bold" if name == explanation.decision.device else ""
        table.add_row(called[name], Text(cells[0], justify="right"), drawn, Text(cells[1]), style=style)
    return table


def made_of_table(explanation: ExplanationData, width: int) -> Table | None:
    """One row per part of a step, one column per device; the parts add up to the step."""
    names = list(explanation.devices)
    if not names:
        return None
    rows = explanation.devices
    parts = {name: step_parts(explanation, name) for name in names}
    shown = shown_parts(parts)
    called = list(headings(rows).values())
    room = bar_width(width, 14 + columns_width(called), len(names))
    table = new_table(f"What {explanation.one} is made of", ["", *with_bars(called, called, room)])

    def add(label: str, texts: Iterable[str], shares: Mapping[str, float] | None = None, style: str = "") -> None:
        cells: list[str | Text] = []
        for number, (name, text) in enumerate(zip(names, texts, strict=True)):
            cells.append(text)
            if room:
                cells.append(drawn_bar((shares or {}).get(name, 0.0), rows[name].step_seconds, room, number))
        table.add_row(label, *cells, style=style)

    for key in shown:
        seconds = {name: parts[name].get(key, 0.0) for name in names}
        add(PARTS.get(key, key), (format_seconds(seconds[name]) for name in names), seconds)
    add(explanation.unit, (format_seconds(rows[name].step_seconds) for name in names), style="bold")
    add("  90% from", (format_seconds(rows[name].low) for name in names))
    add("  90% to", (format_seconds(rows[name].high) for name in names))
    if any(row.one_time_seconds for row in rows.values()):
        add(f"first {explanation.unit}", (_time(first_step(rows[name])) for name in names), style="bold")
        for key in shown_parts({name: rows[name].one_time for name in names}):
            add(f"  {ONE_TIME.get(key, key)}", (_time(rows[name].one_time.get(key)) for name in names))
    totals = {name: rows[name].total_seconds for name in names}
    if any(total is not None for total in totals.values()):
        add("in all", map(_time, totals.values()))
    if any(row.bounded_by for row in rows.values()):
        add("bounded by", (rows[name].bounded_by or "-" for name in names))
    add(
        "needs memory",
        (format_bytes(rows[n].peak_memory_bytes) + ("" if rows[n].fits else " (too much)") for n in names),
    )
    if all_calibrated(rows):
        add("calibrated", (f"{rows[name].coverage:.0%}" for name in names))
    else:
        add("numbers", (kind(name, rows[name].provenance) for name in names))
        add("measured", (f"{rows[name].coverage:.0%}" for name in names))
    return table


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def threads_table(explanation: ExplanationData) -> Table | None:
    """One row per number of CPU threads that was compared; None where there was only one."""
    tried = explanation.decision.thread_options
    if len(tried) < 2:
        return None
    table = new_table("A step on the CPU by number of threads", ["threads", "step", "90% from", "90% to"])
    for option in tried:
        times = [format_seconds(value) for value in (option.step_seconds, option.low, option.high)]
        chosen = explanation.decision.device == "cpu" and option.threads == explanation.decision.threads
        table.add_row(f"{option.threads}", *times, style="bold" if chosen else None)
    return table


def job_table(explanation: ExplanationData, width: int) -> Table | None:
    """One row per part: its steps in one job, their seconds on each device with a bar, and where it is fastest."""
    if not explanation.parts:
        return None
    names = list(explanation.devices)
    called = list(headings(explanation.devices).values())
    labels = max(len(part.name) for part in explanation.parts)
    taken = labels + columns_width([*called, "steps"]) + max(len(fastest(part)) for part in explanation.parts) + 2
    room = bar_width(width, taken, len(names))
    drawn = new_table("Parts of the job", ["part", "steps", *with_bars(called, called, room), "fastest on"])
    for part in explanation.parts:
        cells: list[str | Text] = []
        for number, name in enumerate(names):
            cells.append(format_seconds(part.seconds(name)))
            if room:
                cells.append(drawn_bar(part.seconds(name), explanation.devices[name].step_seconds, room, number))
        drawn.add_row(part.name, f"{part.count:,g}", *cells, fastest(part))
    return drawn


#: Most rows of the table of layers. Layers below ``SMALL`` of the time are folded; where that leaves more rows, those
#: below the larger shares, one after the other.
MOST_ROWS = 40
LARGER = (0.02, 0.03, 0.05, 0.1, 0.2)


def layers_table(explanation: ExplanationData, width: int) -> Table | None:
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


def families_table(explanation: ExplanationData, width: int) -> Table | None:
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


#: Columns of the table.
COST_HEADS = ("", "time", "money", "energy ~", "")
#: What the mark beside energy means.
ENERGY = "Energy (~) is an estimate from data sheets and predicted use, unless you gave the watts."


def costs_told(explanation: ExplanationData) -> bool:
    """Whether money or energy was asked about."""
    priced = any(row.dollars_per_hour is not None for row in explanation.devices.values())
    return len(explanation.devices) > 1 and (priced or explanation.decision.objective != TIME.name)


def costs_table(explanation: ExplanationData) -> Table:
    """One row per device, with what it gives for what it costs beside the choice."""
    drawn = new_table(costs_title(explanation), COST_HEADS)
    for name, row in zip(explanation.devices, cost_cells(explanation), strict=True):
        drawn.add_row(*row, style="bold" if name == explanation.decision.device else "")
    return drawn


def costs_title(explanation: ExplanationData) -> str:
    """What the table is about."""
    return f"What {_run(explanation)} cost"


def cost_cells(explanation: ExplanationData) -> list[list[str]]:
    """The cells below ``COST_HEADS``, by device."""
    called = headings(explanation.devices)
    found = []
    for name, row in explanation.devices.items():
        many = 1 if row.total_seconds is not None else MANY
        money = "-" if row.dollars is None else format_dollars(many * row.dollars)
        energy = "-" if row.joules is None else format_joules(many * row.joules)
        time = format_duration(many * row.seconds)
        found.append([called[name], time, money, energy, beside_choice(explanation, name)])
    return found


def beside_choice(explanation: ExplanationData, name: str) -> str:
    """What a device gives for what it costs beside the choice: ``17% faster for 5.0× the money``."""
    chosen = explanation.decision.device
    if name == chosen or not explanation.devices[name].fits:
        return "the choice" if name == chosen else "does not fit"
    power = explanation.decision.objective == "energy"
    other, best = (
        Point(device, row.seconds, row.dollars, row.joules if power else None)
        for device, row in ((device, explanation.devices[device]) for device in (name, chosen))
    )
    return trade(other, best) or "the same"


def _run(explanation: ExplanationData) -> str:
    steps = explanation.workload.get("steps")
    return f"a million {explanation.unit}s" if steps is None else format_count(steps, explanation.unit)
