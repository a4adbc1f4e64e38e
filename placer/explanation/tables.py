"""An Explanation as a list of sections, which text, page and notebook draw: the short answer, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from placer.decision import MANY, TIME, is_cpu, trade
from placer.explanation.answer import IN_PYTHON, advice_lines, short_answer
from placer.explanation.data import ExplanationData, LayerRow, OpRow
from placer.explanation.layers import gathered, lines, tree
from placer.explanation.words import headings, kind, legend, machine_line, workload_line
from placer.pricing import COMPUTE_PARTS, SOURCES
from placer.sections import Cell, Section
from placer.units import (
    format_bytes,
    format_count,
    format_dollars,
    format_duration,
    format_joules,
    format_seconds,
)

#: What parts of a step are called, where not by their own name; then parts of a first step that later ones lack, and
#: what prices of ops rest on.
_PARTS = {
    "memory": "memory traffic", "overhead": "starting ops", "copy": "copies", "starved": "waiting for host",
    "sync": "host waiting", "first_calls": "first calls", "weights": "moving weights",
    "compiler": "loading the compiler", "learnt": "learnt elsewhere", "physics": "physics alone",
}  # fmt: skip
#: What the phases are called in a sentence.
_PHASES = {"forward": "forward pass", "loss": "loss", "backward": "backward pass", "optimizer": "update"}
#: What the parts of a step are that are no work: on the CPU, and where an accelerator is among the devices.
_DISPATCH = "dispatch is the framework's own time: Python, autograd, the optimizer's loop."
_WAITING = "waiting for host: the device has nothing to run; host waiting: for values of the device."
_ENERGY = "Energy (~) is an estimate from data sheets and predicted use, unless you gave the watts."


def sections(explanation: ExplanationData, verify: str = IN_PYTHON) -> list[Section]:
    """The short answer first; some of the others may be empty. ``verify`` is what to run to time real steps."""
    on_cpu = [is_cpu(name) for name in explanation.devices]
    meanings = [_DISPATCH] if any(on_cpu) else []
    meanings += [] if all(on_cpu) else [_WAITING]
    machine = [f"Machine: {machine_line(explanation.machine)}."] if explanation.machine else []
    return [
        short_answer(explanation, verify),
        Section(after=[workload_line(explanation.workload)]),
        _costs(explanation),
        _job(explanation),
        _layers(explanation),
        _phases(explanation),
        _families(explanation),
        _made_of(explanation),
        _threads(explanation),
        Section(after=[*meanings, *legend(explanation.devices.values())]),
        Section("Where most of it goes", items=_bottlenecks(explanation)),
        Section("What would make it faster", items=advice_lines(explanation)),
        Section("Notes", items=explanation.notes),
        Section(after=machine),
    ]


def _bottlenecks(explanation: ExplanationData) -> list[str]:
    """One sentence for each op that takes most of a phase."""
    sentences = []
    for row in explanation.bottlenecks:
        share, where = f"{row.seconds / row.phase_seconds:.0%}", row.layer or "the model itself"
        device = f" on {row.device}" if len(explanation.devices) > 1 else ""
        times = f"{format_seconds(row.seconds)} of {format_seconds(row.phase_seconds)}"
        sentences.append(f"{row.op} in {where} takes {share} of the {_PHASES[row.phase]}{device}: {times}")
    return sentences


def _times(seconds: Mapping[str, float], whole: Mapping[str, float]) -> list[Cell | str]:
    """Seconds on each device of ``whole``, with bars that are their shares of the seconds there; a dash for none."""
    cells: list[Cell | str] = []
    for number, (name, total) in enumerate(whole.items()):
        time = seconds.get(name)
        cells.append("-" if time is None else Cell(format_seconds(time), time / (total or 1.0), number))
    return cells


def _or_dash(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _costs(explanation: ExplanationData) -> Section:
    """What each device costs, and gives for it beside the choice; nothing where only time was asked about."""
    rows, decision = explanation.devices, explanation.decision
    priced = any(row.dollars_per_hour is not None for row in rows.values())
    if len(rows) < 2 or not (priced or decision.objective != TIME.name):
        return Section()
    power = decision.objective == "energy"
    called, cells = headings(rows), []
    for name, row in rows.items():
        many = 1 if row.total_seconds is not None else MANY
        money = "-" if row.dollars is None else format_dollars(many * row.dollars)
        energy = "-" if row.joules is None else format_joules(many * row.joules)
        gives = "the choice" if name == decision.device else "does not fit"
        if name != decision.device and row.fits:
            gives = trade(row, rows[decision.device], energy=power) or "the same"
        cells.append([called[name], format_duration(many * row.seconds), money, energy, gives])
    count = explanation.workload.get("steps")
    run = f"a million {explanation.unit}s" if count is None else format_count(count, explanation.unit)
    strong, heads = [list(rows).index(decision.device)], ("", "time", "money", "energy ~", "")
    return Section(f"What {run} cost", heads=heads, rows=cells, strong=strong, left=(-1,), after=[_ENERGY])


def _job(explanation: ExplanationData) -> Section:
    """One row per part: its steps in one job, their seconds on each device, and where it is fastest."""
    called = headings(explanation.devices).values()
    whole = {name: cost.step_seconds for name, cost in explanation.devices.items()}
    rows: list[list[Cell | str]] = []
    for part in explanation.parts:
        fastest = min(part.devices, key=lambda device: part.devices[device].step_seconds)
        bound = part.devices[fastest].bounded_by
        times = _times({name: part.seconds(name) for name in whole}, whole)
        rows.append([part.name, f"{part.count:,g}", *times, f"{fastest} ({bound})" if bound else fastest])
    return Section("Parts of the job", heads=["part", "steps", *called, "fastest on"], rows=rows)


def _layers(explanation: ExplanationData) -> Section:
    """One row per layer, one column per device; the shares are those of the chosen device's time."""
    devices = list(explanation.devices)
    if not explanation.layers or not devices:
        return Section()
    chosen = explanation.decision.device if explanation.decision.device in devices else devices[0]
    root = gathered(tree(explanation.layers))
    rows: list[list[Cell | str]] = []
    for depth, node in lines(root):
        times = _times(node.seconds, {name: root.seconds.get(name, 0.0) for name in devices})
        share = node.seconds.get(chosen, 0.0) / (root.seconds.get(chosen) or 1.0)
        rows.append(["  " * depth + node.label, *times, f"{share:.0%}"])
    shares = f"; shares of {chosen}" if len(devices) > 1 else ""
    heads = ["layer", *headings(explanation.devices).values(), "share"]
    return Section(f"Layers (a layer includes those below it{shares})", heads=heads, rows=rows)


def _sums(rows: Sequence[LayerRow | OpRow], devices: Iterable[str]) -> dict[str, float]:
    """Seconds of some rows by device."""
    return {name: sum(row.devices.get(name, 0.0) for row in rows) for name in devices}


def _phases(explanation: ExplanationData) -> Section:
    """One row per phase of a step, one column per device."""
    whole = _sums(explanation.layers, explanation.devices)
    rows: list[list[Cell | str]] = []
    for phase, words in _PHASES.items():
        layers = [row for row in explanation.layers if row.phase == phase]
        if layers:
            rows.append([words, *_times(_sums(layers, whole), whole)])
    heads = ["phase", *headings(explanation.devices).values()]
    return Section("Phases", heads=heads, rows=rows if len(rows) > 1 else [])


def _families(explanation: ExplanationData) -> Section:
    """One row per op family, the slowest first, with the largest share of its time that nobody measured."""
    whole = _sums(explanation.ops, explanation.devices)
    families: dict[str, list[OpRow]] = {}
    for op in explanation.ops:
        families.setdefault(op.family, []).append(op)
    rows: list[tuple[float, list[Cell | str]]] = []
    for family, ops in families.items():
        seconds = _sums(ops, whole)
        guessed = {name: sum(op.guessed.get(name, 0.0) for op in ops) for name in whole}
        unbacked = max((guessed[name] / (seconds[name] or 1.0) for name in whole), default=0.0)
        calls, share = f"{sum(op.count for op in ops):,}", f"{unbacked:.0%}" if unbacked >= 0.005 else "-"
        rows.append((max(seconds.values(), default=0.0), [family, calls, *_times(seconds, whole), share]))
    rows.sort(key=itemgetter(0), reverse=True)
    heads = ["family", "calls", *headings(explanation.devices).values(), "unbacked"]
    return Section("Operators", heads=heads, rows=[row for _, row in rows])


def step_parts(explanation: ExplanationData, device: str) -> dict[str, float]:
    """Seconds of a step by part, in the order they are shown; they add up to the step.

    Where it is known what the ops' time goes into, those parts replace ``compute``. An accelerator's ``dispatch`` is
    time that it waits for its host, and is shown as that.
    """
    components = dict(explanation.devices[device].components)
    parts: dict[str, float] = {}
    if bounds := explanation.bounds.get(device):
        components.pop("compute", None)
        parts = {name: bounds.get(name, 0.0) for name in COMPUTE_PARTS}
    for name, seconds in components.items():
        parts["starved" if name == "dispatch" and not is_cpu(device) else name] = seconds
    return parts


def _made_of(explanation: ExplanationData) -> Section:
    """One row per part of a step, one column per device; the parts add up to the step."""
    devices, costs = explanation.devices, list(explanation.devices.values())
    whole = {name: cost.step_seconds for name, cost in devices.items()}
    parts = [step_parts(explanation, name) for name in devices]
    rows: list[list[Cell | str]] = []
    for key in _taking_time(parts):
        seconds = {name: by[key] for name, by in zip(devices, parts, strict=True) if key in by}
        rows.append([_PARTS.get(key, key), *_times(seconds, whole)])
    strong = [len(rows)]
    rows.append([explanation.unit, *(format_seconds(cost.step_seconds) for cost in costs)])
    rows.append(["  90% from", *(format_seconds(cost.low) for cost in costs)])
    rows.append(["  90% to", *(format_seconds(cost.high) for cost in costs)])
    if any(cost.one_time_seconds for cost in costs):
        strong.append(len(rows))
        first = [cost.one_time_seconds + cost.step_seconds if cost.one_time_seconds else None for cost in costs]
        rows.append([f"first {explanation.unit}", *map(_or_dash, first)])
        for key in _taking_time([cost.one_time for cost in costs]):
            once = [_or_dash(cost.one_time.get(key)) + " assumed" * (key in cost.assumed) for cost in costs]
            rows.append([f"  {_PARTS.get(key, key)}", *once])
        if repaid := explanation.decision.break_even_steps:
            gpu, many = _accelerator(explanation), f"{repaid:,} {explanation.unit}s"
            rows.append(["  repaid after", *(many if name == gpu else "-" for name in devices)])
    if any(cost.total_seconds is not None for cost in costs):
        rows.append(["in all", *(_or_dash(cost.total_seconds) for cost in costs)])
    if any(cost.bounded_by for cost in costs):
        rows.append(["bounded by", *(cost.bounded_by or "-" for cost in costs)])
    memory = [format_bytes(cost.peak_memory_bytes) + ("" if cost.fits else " (too much)") for cost in costs]
    rows.append(["needs memory", *memory])
    rows.append(["numbers", *map(kind, costs)])
    for source in SOURCES:
        shares = [cost.sources.get(source, 0.0) for cost in costs]
        if max(shares, default=0.0) >= 0.005:
            percents = [f"{share:.0%}" if share >= 0.005 else "-" for share in shares]
            rows.append([f"  {_PARTS.get(source, source)}", *percents])
    heads = ["", *headings(devices).values()]
    one = "the job" if explanation.parts else "a step"
    return Section(f"What {one} is made of", heads=heads, rows=rows if costs else [], strong=strong)


def _accelerator(explanation: ExplanationData) -> str:
    """The accelerator that was chosen, or comes closest to it; "" where there is none."""
    rows, chosen = explanation.devices, explanation.decision.device
    fitting = [name for name in rows if not is_cpu(name) and rows[name].fits]
    return chosen if chosen in fitting else min(fitting, key=lambda name: rows[name].seconds, default="")


def _taking_time(parts: Iterable[Mapping[str, float]]) -> list[str]:
    """The names of the parts that take time on some device, in order."""
    names: list[str] = []
    for by_part in parts:
        names += [name for name, seconds in by_part.items() if seconds]
    return list(dict.fromkeys(names))


def _threads(explanation: ExplanationData) -> Section:
    """One row per number of CPU threads that was compared; nothing where there was only one."""
    tried, decision = explanation.decision.thread_options, explanation.decision
    rows = [
        [f"{option.threads}", *map(format_seconds, (option.step_seconds, option.low, option.high))] for option in tried
    ]
    strong = [n for n, option in enumerate(tried) if (decision.device, decision.threads) == ("cpu", option.threads)]
    title, heads = "A step on the CPU by number of threads", ["threads", "step", "90% from", "90% to"]
    return Section(title, heads=heads, rows=rows if len(tried) > 1 else [], strong=strong)
