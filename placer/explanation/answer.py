"""The short answer: one section with the verdict, a bar for each device, and a line for each fact that decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placer.decision import ABOUT_THE_SAME, TIE, Advice, is_cpu
from placer.explanation.accuracy import off
from placer.explanation.data import ExplanationData
from placer.explanation.words import headings, kind, kind_mark, sureness
from placer.sections import Cell, Fact, Section
from placer.units import (
    format_bytes,
    format_count,
    format_dollars,
    format_duration,
    format_interval,
    format_joules,
    format_part,
    format_ratio,
    format_seconds,
)

#: What the user runs in the library to time real steps.
IN_PYTHON = 'placer.explain(..., options=placer.Options(measure="always"))'
#: What numbers rest on.
_RESTS = {
    "estimated": "a similar CPU",
    "published": "published times",
    "data sheet": "the GPU's data sheet",
}
#: What takes most of a step, by what bounds it: what such a step is called, and what takes the time.
_BOUND = {
    "launches": ("launch-bound", "starting operations"),
    "transfer": ("copy-bound", "copies"),
    "arithmetic": ("compute-bound", "arithmetic"),
    "memory": ("memory-bound", "memory traffic"),
    "waits": ("wait-bound", "waiting for values"),
    "loader": ("loader-bound", "waiting for batches"),
}


def short_answer(explanation: ExplanationData, verify: str = IN_PYTHON) -> Section:
    """``verify`` is what to run to time real steps; "" leaves that out."""
    rows = _bars(explanation)
    strong = [number for number, name in enumerate(explanation.devices) if name == explanation.decision.device]
    facts = list(_facts(explanation, verify))
    return Section(headline(explanation), rows=rows, strong=strong, left=(-1,), facts=facts)


def _facts(explanation: ExplanationData, verify: str) -> Iterator[Fact]:
    """What stands below the bars, in order."""
    if explanation.workload.get("inputs_assumed"):
        first, *others = explanation.workload["inputs"]
        more = f" and {len(others)} more" if others else ""
        yield Fact("assumes", f"a batch of {first}{more} (--batch sets it)")
    if bounds := why_line(explanation):
        yield Fact("why", bounds)
    yield from (Fact("note", sentence) for sentence in explanation.left_out)
    if explanation.turn is not None:
        yield Fact("turns", _turn(explanation))
    if explanation.workload.get("epochs"):
        yield Fact("in all", _in_all(explanation))
    if basis := basis_line(explanation):
        yield Fact("rests on", basis)
    yield from (Fact("advice", best) for best in advice_lines(explanation)[:1])
    if explanation.measured:
        yield Fact("measured", "; ".join(_measured(explanation)))
    elif verify and explanation.devices and not explanation.parts and not explanation.workload.get("step_function"):
        there = "" if _where(explanation) == "here" else "on such a machine: "
        yield Fact("verify", there + verify, command=True)


# The verdict.


def headline(explanation: ExplanationData) -> str:
    """The verdict in one sentence: what is the best, and how sure that is.

    Where there are GPUs that are only thought beside the devices of a machine, these are the ones that it is about.
    """
    decision, devices = explanation.decision, explanation.devices
    if absent(explanation) and decision.objective == "time":
        return _beside_absent(explanation)
    if list(devices) == [decision.device] and devices[decision.device].fits:
        return f"{decision.device}: {_taken(explanation, decision.device)}"
    if decision.speedup is None or decision.confidence is None:
        return decision.reason
    others = [name for name in devices if name != decision.device]
    than, sure = others[0] if len(others) == 1 else "the next best", f"{sureness(decision.confidence)} sure"
    if decision.objective == "time":
        ratio, compared = f"{format_ratio(decision.speedup)} as fast", f" as {than}"
    else:
        what = "costs" if decision.objective == "cost" else "takes of energy"
        percent = f"{1.0 / decision.speedup:.0%}" if decision.speedup < 200.0 else "<1%"
        ratio, compared = f"{percent} of what {than} {what}", ""
    if decision.tie:
        return f"{decision.device}: {ABOUT_THE_SAME}{compared} ({ratio}, {sure})"
    return f"{decision.device}: {ratio}{compared}, {sure}"


def absent(explanation: ExplanationData) -> dict[str, str]:
    """The GPUs that are only thought beside the devices of one machine, by name: what each is called in a sentence.

    None where there are several machines, or no other devices.
    """
    gpus = {name: name.partition("@")[2] for name in explanation.devices if "@" in name}
    return gpus if len(gpus) < len(explanation.devices) and not any(map(is_cpu, gpus)) else {}


def _best_present(explanation: ExplanationData) -> str:
    """The best device of the machine that is compared with: not one that is only thought beside it."""
    rows, decision, called = explanation.devices, explanation.decision, absent(explanation)
    devices = [name for name in rows if name not in called]
    fitting = [name for name in devices if rows[name].fits] or devices
    return decision.device if decision.device in devices else min(fitting, key=lambda name: rows[name].seconds)


def spoken(explanation: ExplanationData, device: str) -> str:
    """What a device is called in a sentence: ``cpu``, ``the Tesla T4``."""
    called = absent(explanation)
    return f"the {called[device]}" if device in called else device


def _where(explanation: ExplanationData) -> str:
    """``here``, or ``there`` where the numbers are those of another machine."""
    return "here" if explanation.machine.get("here", True) else "there"


def _taken(explanation: ExplanationData, device: str) -> str:
    """What a device takes: ``3.94 ms a step``, ``1.80 s for 1,024 steps``."""
    row = explanation.devices[device]
    steps = explanation.workload.get("steps") if row.total_seconds is not None else None
    many = f"for {format_count(steps, explanation.unit)}" if steps else f"a {explanation.unit}"
    return f"{format_duration(row.seconds)} {many}"


def _beside_absent(explanation: ExplanationData) -> str:
    """What the best device of the machine takes, and how much faster the GPUs would be that it does not have."""
    rows, gpus, name = explanation.devices, absent(explanation), _best_present(explanation)
    only = "only" if len(rows) == len(gpus) + 1 else "best"
    time = f": {_taken(explanation, name)}" if rows[name].fits else ", and has too little memory"
    start = f"{name} is the {only} device {_where(explanation)}{time}"
    fitting = [gpu for gpu in gpus if rows[gpu].fits]
    if len(fitting) == 1 or len(gpus) == 1:
        subject = spoken(explanation, (fitting or list(gpus))[0])
    else:
        subject = "GPUs with room" if fitting and len(fitting) < len(gpus) else "these GPUs"
    if not fitting:
        return f"{start}; {subject} {'have' if len(gpus) > 1 else 'has'} too little memory for it"
    ratios = sorted(rows[name].seconds / rows[gpu].seconds for gpu in fitting)
    if ratios[0] >= 1.0 - TIE and ratios[-1] <= 1.0 + TIE:
        ratio = f" ({format_ratio(ratios[0])})" if len(gpus) == 1 else ""
        return f"{start}; {subject} would be {ABOUT_THE_SAME}{ratio}"
    slower = ratios[-1] < 1.0
    shown = [format_ratio(1.0 / ratio) for ratio in reversed(ratios)] if slower else list(map(format_ratio, ratios))
    between = shown[-1] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
    end = f"would take {between} as long" if slower else f"would be {between} as fast"
    decision = explanation.decision
    compared = len(rows) == 2 and decision.confidence is not None and not decision.tie
    sure = f", {sureness(decision.confidence or 0.0)} sure" if compared else ""
    return f"{start}; {subject} {end}{sure}"


# The bars.


def _bars(explanation: ExplanationData) -> list[list[Cell | str]]:
    """One row per device, its step as a bar on a common scale, and its 90 % interval, or that it has too little memory.

    Of several GPUs that are only thought beside a machine, also how fast they would be beside its own best device.
    """
    longest = max((row.step_seconds for row in explanation.devices.values()), default=0.0) or 1.0
    called, thought = headings(explanation.devices), absent(explanation)
    rows: list[list[Cell | str]] = []
    for number, (name, row) in enumerate(explanation.devices.items()):
        remark = format_interval(row.low, row.high, row.step_seconds)
        if not row.fits:
            remark = f"does not fit: needs {format_bytes(row.peak_memory_bytes)}"
        elif len(thought) > 1 and name in thought:
            faster = explanation.devices[_best_present(explanation)].seconds / row.seconds
            ratio = f"{format_ratio(faster)} as fast" if faster >= 1.0 else f"{format_ratio(1.0 / faster)} as long"
            remark += f"  {ratio}{'' if row.total_seconds is None else ' in all'}"
        rows.append([called[name], Cell(format_seconds(row.step_seconds), row.step_seconds / longest, number), remark])
    return rows


# The facts.


def why_line(explanation: ExplanationData) -> str:
    """What bounds a step on the best device; then on the one it is compared with: the best of the other kind."""
    rows, chosen = explanation.devices, explanation.decision.device
    if chosen not in rows or not _bound(explanation, chosen):
        return ""
    if len(rows) == 1:
        return _bound(explanation, chosen).replace(",", ":", 1)
    others = [name for name in rows if is_cpu(name) != is_cpu(chosen) and rows[name].fits]
    if chosen in absent(explanation):
        others = [_best_present(explanation)]
    compared = [chosen, *sorted(others, key=lambda name: rows[name].seconds)[:1]]
    bounds = [(spoken(explanation, name), _bound(explanation, name)) for name in compared]
    return "; ".join(f"{name} is {bound}" for name, bound in bounds if bound)


def bound_of(explanation: ExplanationData, device: str) -> str:
    """What bounds a step on a device, in a word: ``launch-bound``; "" where not known."""
    bound = explanation.devices[device].bounded_by
    return "" if bound is None else _BOUND[bound][0]


def _bound(explanation: ExplanationData, device: str) -> str:
    """What most of a step goes into: ``launch-bound, 1.10 of 1.50 ms is starting operations``; "" where not known."""
    row = explanation.devices[device]
    if row.bounded_by is None:
        return ""
    bound, what = _BOUND[row.bounded_by]
    seconds = explanation.limits.get(device, {}).get(row.bounded_by)
    if seconds is None:
        return f"{bound}, most of it is {what}"
    return f"{bound}, {format_part(seconds, row.step_seconds)} is {what}"


def _turn(explanation: ExplanationData) -> str:
    """From which batch size on the choice is another one."""
    turn = explanation.turn
    assert turn is not None
    several = sum(not is_cpu(name) for name in explanation.devices) > 1
    below, above = (
        "a GPU" if several and not is_cpu(name) else spoken(explanation, name) for name in (turn.below, turn.above)
    )
    steps = explanation.workload.get("steps")
    run = f", for {steps:,} steps" if steps else ""
    if turn.batch is None:
        return f"{below} at every batch from {turn.smallest:,} to {turn.largest:,}{run}"
    return f"{below} up to a batch of about {round(turn.batch):,}, {above} from there on{run}"


def _in_all(explanation: ExplanationData) -> str:
    """What all epochs take on each device, with their money and energy where these are known."""
    epochs, steps = explanation.workload["epochs"], explanation.workload["steps"]
    devices = [
        device_words(name, row.seconds, row.between, row.dollars, row.joules)
        for name, row in explanation.devices.items()
    ]
    return f"{format_count(epochs, 'epoch')} of {format_count(steps // epochs, 'step')}: {', '.join(devices)}"


def device_words(
    name: str,
    seconds: float,
    between: tuple[float, float],
    dollars: float | None,
    joules: float | None,
    measured: float | None = None,
) -> str:
    """What a run takes on a device: ``RTX 4090 23.3 s (15.6–35.3 s, $0.00258, ~1,836 J)``; what is None is left out."""
    words = [format_interval(*between, seconds)]
    if measured is not None:
        words.append(f"measured {format_duration(measured)}")
    if dollars is not None:
        words.append(format_dollars(dollars))
    if joules is not None:
        words.append(f"~{format_joules(joules)}")
    return f"{name.partition('@')[2] or name} {format_duration(seconds)} ({', '.join(words)})"


def basis_line(explanation: ExplanationData) -> str:
    """What the numbers rest on, one clause for each kind, and how far such numbers are off."""
    clauses = []
    groups: dict[str, list[str]] = {}
    for name in explanation.devices:
        groups.setdefault(_basis(explanation, name), []).append(name)
    for basis, names in groups.items():
        predicted = [name for name in names if name not in explanation.real]
        cpus, gpus = [name for name in predicted if is_cpu(name)], [name for name in predicted if not is_cpu(name)]
        errors = _off(explanation, cpus or gpus)
        if cpus and gpus:
            errors = f"cpu {errors}, GPU {_off(explanation, gpus)}"
        clauses.append(f"{basis} ({errors})" if errors else basis)
    return ", ".join(clauses)


def _basis(explanation: ExplanationData, name: str) -> str:
    """What a device's numbers rest on, with the mark of predictions."""
    cost, steps = explanation.devices[name], explanation.real.get(name)
    if steps is not None and steps.same_step:
        return f"real steps {steps.said}"
    calibration = f"a calibration {_where(explanation)}"
    basis = f"{kind_mark(cost)} {_RESTS.get(kind(cost), calibration)}".strip()
    return basis if steps is None else f"{basis}, with {steps.said}"


def _off(explanation: ExplanationData, names: Sequence[str]) -> str:
    """How far the numbers of these devices are off as a rule; "" where that is not known."""
    return off([explanation.usual_errors[name] for name in names if name in explanation.usual_errors])


def _measured(explanation: ExplanationData) -> Iterator[str]:
    """What real steps took on the devices here, and by how much the prediction is longer or shorter."""
    for name, row in explanation.measured.items():
        predicted = format_seconds(explanation.devices[name].step_seconds)
        yield f"{name} {format_seconds(row.step_seconds)}, predicted {predicted} ({row.off:+.0%})"


def advice_lines(explanation: ExplanationData) -> list[str]:
    """One sentence for each change that would save time."""
    return [advice_line(explanation, advice) for advice in explanation.advice]


def advice_line(explanation: ExplanationData, advice: Advice, *, where: str = "") -> str:
    """What a change saves, where it would then run, and how to make it.

    ``where`` is the device that need not be named; the chosen one by default.
    """
    per_row = " per row" if advice.kind == "batch" else ""
    saves = f"{advice.change}: {'~' if advice.guess else ''}{advice.gain:.0%} less time{per_row}"
    unnamed = where or explanation.decision.device
    elsewhere = f", on {spoken(explanation, advice.device)}" if advice.device != unnamed else ""
    times = f"{format_seconds(advice.after)} instead of {format_seconds(advice.before)}{elsewhere}"
    results = "; this changes the model's results" if advice.changes_results else ""
    results += "; this would tip it" if advice.tips else ""
    how = f": {advice.how}" if advice.how else ""
    return f"{saves} ({times}){results}{how}"
