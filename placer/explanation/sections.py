"""An Explanation as sections: tables, lists and words, in the order of the text and of the page.

``text`` draws them for a terminal, ``page`` as HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.decision import MANY, TIME, is_cpu, trade
from placer.explanation.data import ExplanationData, OpRow
from placer.explanation.layers import gathered, lines, percents, tree
from placer.explanation.sentences import (
    ONE_TIME,
    PARTS,
    RESTS,
    absent,
    advice_lines,
    best_own,
    bottleneck_lines,
    first_step,
    headings,
    kind,
    legend,
    machine_parts,
    shown_parts,
    step_parts,
)
from placer.pricing import SOURCES, Cost
from placer.units import (
    format_bytes,
    format_count,
    format_dollars,
    format_duration,
    format_interval,
    format_joules,
    format_ratio,
    format_seconds,
    whole_percents,
)

#: Op families and layers below this share of the time on every device are folded into one row.
SMALL = 0.01
#: Most rows of the table of layers. Where layers below ``SMALL`` leave more, those below the larger shares are folded.
MOST_ROWS = 40
LARGER = (0.02, 0.03, 0.05, 0.1, 0.2)
#: A time is marked (``MARK``) where more than this share of it is not backed by measurements.
GUESS = 0.1
MARK = "~"
_MARKED = f"{MARK} more than a tenth of it is not backed by measurements of that operation in that range."
#: What the parts of a step are that are no work: on the CPU, and where an accelerator is among the devices.
_DISPATCH = "dispatch is the framework's own time: Python, autograd, the optimizer's loop."
_WAITING = "waiting for host: the device has nothing to run; host waiting: for values of the device."
_ENERGY = "Energy (~) is an estimate from data sheets and predicted use, unless you gave the watts."


class Cell(str):
    """A time in a table. With a ``share`` of the column's whole it has a bar, in the colour of device ``number``."""

    share: float | None = None
    number: int = 0
    guess: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a text or a page: words, plots (a heading and an SVG each), a table, a list, and words below them.

    Only a page has words above and plots. ``strong`` rows of the table are bold. Words stand in the columns ``left``,
    and in a ``wordy`` table's last.
    """

    title: str
    words: str = ""
    plots: Sequence[tuple[str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    strong: Sequence[int] = ()
    wordy: bool = False
    left: Sequence[int] = ()
    items: Sequence[str] = ()
    after: Sequence[str] = ()


def sections(explanation: ExplanationData) -> Iterator[Section]:
    """All that follows the verdict; some may be empty."""
    yield _costs(explanation)
    yield _job(explanation)
    body = _layers(explanation), _families(explanation)
    yield from body
    if explanation.devices:
        yield _made_of(explanation)
    yield _threads(explanation)
    if explanation.devices:
        on_cpu = [is_cpu(name) for name in explanation.devices]
        yield Section("", after=[*([_DISPATCH] if any(on_cpu) else []), *([] if all(on_cpu) else [_WAITING])])
    cells = [cell for section in body for row in section.rows for cell in row]
    yield Section("", after=[_MARKED] if any(isinstance(cell, Cell) and cell.guess for cell in cells) else [])
    yield Section("", after=legend(explanation.devices.values()))
    yield Section("Where most of it goes", items=bottleneck_lines(explanation))
    yield Section("What would make it faster", items=advice_lines(explanation))
    yield Section("Notes", items=explanation.notes)
    machine = [f"Machine: {', '.join(machine_parts(explanation.machine))}."] if explanation.machine else []
    yield Section("", after=machine)


def time_cell(seconds: float, unsure: float, whole: float | None = None, number: int = 0) -> Cell:
    """A time, marked where much of it (``unsure`` seconds) is a guess; with a bar where it is a part of a ``whole``."""
    guess = unsure > max(GUESS * seconds, 0.0)
    cell = Cell((MARK if guess else "") + format_seconds(seconds))
    cell.guess, cell.number = guess, number
    if whole is not None:
        cell.share = seconds / whole if whole else 0.0
    return cell


def steps(explanation: ExplanationData) -> Section:
    """One row per device, its step as a bar on a common scale, and its 90 % interval, or that it has too little memory.

    Of several GPUs that are only thought beside a machine, also how fast they would be beside its own best device.
    """
    if not explanation.devices:
        return Section("")
    longest = max(row.step_seconds for row in explanation.devices.values())
    called, thought = headings(explanation.devices), absent(explanation.devices)
    rows = []
    for number, (name, row) in enumerate(explanation.devices.items()):
        beside = format_interval(row.low, row.high, row.step_seconds)
        if not row.fits:
            beside = f"does not fit: needs {format_bytes(row.peak_memory_bytes)}"
        elif len(thought) > 1 and name in thought:
            best = explanation.devices[best_own(explanation)]
            faster = best.seconds / row.seconds
            slower = f"  {format_ratio(1.0 / faster)} as long"
            beside += f"  {format_ratio(faster)} as fast" if faster >= 0.1 else slower
            beside += "" if row.total_seconds is None else " in all"
        rows.append([called[name], time_cell(row.step_seconds, 0.0, longest, number), beside])
    strong = [number for number, name in enumerate(explanation.devices) if name == explanation.decision.device]
    return Section("", rows=rows, strong=strong, wordy=True)


def _costs(explanation: ExplanationData) -> Section:
    """What each device costs, and gives for it beside the choice; nothing where only time was asked about."""
    rows, decision = explanation.devices, explanation.decision
    priced = any(row.dollars_per_hour is not None for row in rows.values())
    if len(rows) < 2 or not (priced or decision.objective != TIME.name):
        return Section("")
    called, cells = headings(rows), []
    for name, row in rows.items():
        many = 1 if row.total_seconds is not None else MANY
        money = "-" if row.dollars is None else format_dollars(many * row.dollars)
        energy = "-" if row.joules is None else format_joules(many * row.joules)
        cells.append([called[name], format_duration(many * row.seconds), money, energy, _trade(explanation, name)])
    count = explanation.workload.get("steps")
    run = f"a million {explanation.unit}s" if count is None else format_count(count, explanation.unit)
    strong = [number for number, name in enumerate(rows) if name == decision.device]
    heads = ("", "time", "money", "energy ~", "")
    return Section(f"What {run} cost", heads=heads, rows=cells, strong=strong, wordy=True, after=[_ENERGY])


def _trade(explanation: ExplanationData, name: str) -> str:
    """What a device gives for what it costs beside the choice: ``17% faster for 5.0× the money``."""
    chosen, rows = explanation.decision.device, explanation.devices
    if name == chosen or not rows[name].fits:
        return "the choice" if name == chosen else "does not fit"
    energy = explanation.decision.objective == "energy"
    return trade(rows[name], rows[chosen], energy=energy) or "the same"


def _job(explanation: ExplanationData) -> Section:
    """One row per part: its steps in one job, their seconds on each device, and where it is fastest."""
    if not explanation.parts:
        return Section("")
    called, rows = list(headings(explanation.devices).values()), []
    for part in explanation.parts:
        fastest = min(part.devices, key=lambda device: part.devices[device].step_seconds)
        bound = part.devices[fastest].bounded_by
        times = [
            time_cell(part.seconds(name), 0.0, whole.step_seconds, number)
            for number, (name, whole) in enumerate(explanation.devices.items())
        ]
        rows.append([part.name, f"{part.count:,g}", *times, f"{fastest} ({bound})" if bound else fastest])
    return Section("Parts of the job", heads=["part", "steps", *called, "fastest on"], rows=rows)


def _layers(explanation: ExplanationData) -> Section:
    """One column per phase when there is one device, one per device when there are several.

    The shares are those of the chosen device's time: the rows one level below a row add up to it.
    """
    devices = list(explanation.devices)
    if not explanation.layers or not devices:
        return Section("")
    phases = [p for p in ("forward", "loss", "backward", "optimizer") if any(r.phase == p for r in explanation.layers)]
    by_phase = len(devices) == 1 and len(phases) > 1
    root = gathered(tree(explanation.layers, devices[0] if by_phase else None))
    for small in (SMALL, *LARGER):
        shown = list(lines(root, small, add_columns=by_phase))
        if len(shown) <= MOST_ROWS:
            break
    called = headings(explanation.devices)
    heads = [*phases, "sum"] if by_phase else [called[name] for name in devices]
    of = explanation.decision.device if explanation.decision.device in devices else devices[0]
    rows: list[list[str]] = []
    for line, percent in zip(shown, percents(shown, phases if by_phase else [of]), strict=True):
        seconds, unsure, whole = line.node.seconds, line.node.guessed, root.seconds
        row: list[str] = ["  " * line.depth + line.node.label]
        if by_phase:
            row += [time_cell(seconds.get(phase, 0.0), unsure.get(phase, 0.0)) for phase in phases]
            row.append(time_cell(sum(seconds.values()), sum(unsure.values()), sum(whole.values())))
        for number, name in enumerate([] if by_phase else devices):
            row.append(time_cell(seconds.get(name, 0.0), unsure.get(name, 0.0), whole.get(name, 0.0), number))
        rows.append([*row, f"{percent}%"])
    shares = f"; shares of {of}" if len(devices) > 1 else ""
    return Section(f"Layers (a layer includes those below it{shares})", heads=["layer", *heads, "share"], rows=rows)


def _families(explanation: ExplanationData) -> Section:
    """One row per op family with the share that nobody measured; small families are folded."""
    devices = list(explanation.devices)
    if not explanation.ops or not devices:
        return Section("")
    by_family: dict[str, list[OpRow]] = {}
    for op in explanation.ops:
        by_family.setdefault(op.family, []).append(op)
    totals = {name: _seconds(explanation.ops, name) for name in devices}
    large: dict[str, list[OpRow]] = {}
    small: list[OpRow] = []
    for family, ops in sorted(by_family.items(), key=lambda item: -max(_seconds(item[1], name) for name in devices)):
        if any(_seconds(ops, name) >= SMALL * totals[name] > 0.0 for name in devices):
            large[family] = ops
        else:
            small += ops
    rows: list[list[str]] = []
    for label, ops in [*large.items(), *([("(other families)", small)] if small else [])]:
        cells: list[str] = [label, f"{sum(op.count for op in ops):,}"]
        share = 0.0
        for number, name in enumerate(devices):
            seconds, doubt = _seconds(ops, name), sum(op.guessed.get(name, 0.0) for op in ops)
            share = max(share, doubt / seconds if seconds else 0.0)
            cells.append(time_cell(seconds, doubt, totals[name], number))
        rows.append([*cells, f"{share:.0%}" if share >= 0.005 else "-"])
    called = list(headings(explanation.devices).values())
    return Section("Operators", heads=["family", "calls", *called, "unbacked"], rows=rows)


def _seconds(ops: Sequence[OpRow], device: str) -> float:
    """What these take together on a device."""
    return sum(op.devices.get(device, 0.0) for op in ops)


def _made_of(explanation: ExplanationData) -> Section:
    """One row per part of a step, one column per device; the parts add up to the step."""
    devices = explanation.devices
    costs = list(devices.values())
    parts = {name: step_parts(explanation, name) for name in devices}
    rows: list[list[str]] = []
    for key in shown_parts(parts):
        times = [
            time_cell(parts[name][key], 0.0, cost.step_seconds, number) if key in parts[name] else "-"
            for number, (name, cost) in enumerate(devices.items())
        ]
        rows.append([PARTS.get(key, key), *times])
    strong = [len(rows)]
    rows.append([explanation.unit, *(format_seconds(cost.step_seconds) for cost in costs)])
    rows.append(["  90% from", *(format_seconds(cost.low) for cost in costs)])
    rows.append(["  90% to", *(format_seconds(cost.high) for cost in costs)])
    if any(cost.one_time_seconds for cost in costs):
        strong.append(len(rows))
        rows.append([f"first {explanation.unit}", *(_time(first_step(cost)) for cost in costs)])
        once = shown_parts({name: cost.one_time for name, cost in devices.items()})
        rows += [[f"  {ONE_TIME.get(key, key)}", *(_once(cost, key) for cost in costs)] for key in once]
    if any(cost.total_seconds is not None for cost in costs):
        rows.append(["in all", *(_time(cost.total_seconds) for cost in costs)])
    if any(cost.bounded_by for cost in costs):
        rows.append(["bounded by", *(cost.bounded_by or "-" for cost in costs)])
    memory = [format_bytes(cost.peak_memory_bytes) + ("" if cost.fits else " (too much)") for cost in costs]
    rows.append(["needs memory", *memory])
    rows.append(["numbers", *map(kind, costs)])
    rests = [whole_percents([cost.sources.get(source, 0.0) for source in SOURCES]) for cost in costs]
    for number, source in enumerate(SOURCES):
        if any(shares[number] for shares in rests):
            rows.append([f"  {RESTS[source]}", *(f"{shares[number]}%" if shares[number] else "-" for shares in rests)])
    called = list(headings(devices).values())
    return Section(f"What {explanation.one} is made of", heads=["", *called], rows=rows, strong=strong)


def _once(cost: Cost, part: str) -> str:
    """A part of the first step; marked where it is assumed."""
    return _time(cost.one_time.get(part)) + (" assumed" if part in cost.assumed else "")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _threads(explanation: ExplanationData) -> Section:
    """One row per number of CPU threads that was compared; nothing where there was only one."""
    tried, decision = explanation.decision.thread_options, explanation.decision
    if len(tried) < 2:
        return Section("")
    rows = [
        [f"{option.threads}", *map(format_seconds, (option.step_seconds, option.low, option.high))] for option in tried
    ]
    strong = [n for n, option in enumerate(tried) if (decision.device, decision.threads) == ("cpu", option.threads)]
    heads = ["threads", "step", "90% from", "90% to"]
    return Section("A step on the CPU by number of threads", heads=heads, rows=rows, strong=strong)
