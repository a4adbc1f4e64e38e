"""The answer in sentences, and the names of what it is made of: devices with marks, parts of a step, bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from placer.decision import ABOUT_THE_SAME, TIE, is_cpu
from placer.explanation.data import ExplanationData
from placer.pricing import COMPUTE_PARTS, Cost, Source
from placer.units import format_count, format_duration, format_part, format_ratio, format_seconds

#: The provenance, in a legend, of a CPU that was not calibrated.
_ESTIMATED = "estimated"
#: Marks beside the names of devices that placer did not measure. A calibrated device has none.
MARKS = {_ESTIMATED: "§", "published": "†", "data sheet": "‡"}
_MEANING = {
    _ESTIMATED: "estimated from a similar CPU's measurements, not calibrated here; run: placer calibrate",
    "published": "from measurements that others published of this GPU and of others, not from a calibration.",
    "data sheet": "from the GPU's data sheet and published measurements of other GPUs: nobody's timings of this one.",
}


def kind(cost: Cost) -> str:
    """What a device's numbers rest on, in a word: its provenance; of a CPU that was not calibrated, ``estimated``."""
    return _ESTIMATED if is_cpu(cost.device) and cost.provenance != "calibrated" else cost.provenance


def kind_mark(cost: Cost) -> str:
    """The mark of what a device's numbers rest on; "" of a calibrated one."""
    return MARKS.get(kind(cost), "")


def headings(devices: Mapping[str, Cost]) -> dict[str, str]:
    """What each device is called above its numbers: its name, with the mark of what these rest on."""
    return {name: f"{name} {kind_mark(cost)}".rstrip() for name, cost in devices.items()}


def legend(costs: Iterable[Cost]) -> list[str]:
    """One line for each mark that stands somewhere."""
    bases = set(map(kind, costs))
    return [f"{MARKS[basis]} {meaning}" for basis, meaning in _MEANING.items() if basis in bases]


#: The part of a step in which an accelerator has nothing to run, as its host is late: its ``dispatch``.
_STARVED = "starved"
#: What parts of a step are called, where not by their own name.
PARTS = {
    "memory": "memory traffic", "overhead": "starting ops", "copy": "copies", _STARVED: "waiting for host",
    "sync": "host waiting",
}  # fmt: skip
#: The same of the parts of a first step that a later one does not have.
ONE_TIME = {"first_calls": "first calls", "weights": "moving weights", "compiler": "loading the compiler"}
#: What prices of ops rest on, in a few words.
RESTS: dict[Source, str] = {
    "calibrated": "calibrated", "published": "published", "extrapolated": "extrapolated", "learnt": "learnt elsewhere",
    "physics": "physics alone", "guess": "guess",
}  # fmt: skip


def step_parts(explanation: ExplanationData, device: str) -> dict[str, float]:
    """Seconds of a step by part, in the order they are shown; they add up to the step.

    Where it is known what the ops' time goes into, those parts replace ``compute``. An accelerator's ``dispatch`` is
    time that it waits for its host, and is shown as that.
    """
    components = {
        _STARVED if name == "dispatch" and not is_cpu(device) else name: seconds
        for name, seconds in explanation.devices[device].components.items()
    }
    compute_parts = explanation.bounds.get(device)
    if not compute_parts:
        return components
    components.pop("compute", None)
    return {**{name: compute_parts.get(name, 0.0) for name in COMPUTE_PARTS}, **components}


def shown_parts(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The names of the parts that take time on some device, in order."""
    return list(dict.fromkeys(key for by_part in parts.values() for key, seconds in by_part.items() if seconds))


def first_step(row: Cost) -> float | None:
    """Seconds of the first step, one-time costs included; None where none are known."""
    return row.one_time_seconds + row.step_seconds if row.one_time_seconds else None


#: What the phases are called in a sentence.
_PHASES = {"forward": "forward pass", "loss": "loss", "backward": "backward pass", "optimizer": "update"}


def details(explanation: ExplanationData) -> list[str]:
    """What the headline leaves out, a line each: the first step, and what would tip a near tie."""
    tips = [f"{row.change} ({row.device})" for row in explanation.advice if row.tips]
    tipping = [f"What would tip it: {', or '.join(tips)}."] if tips else []
    return [*_first_step(explanation), *tipping]


def headline(explanation: ExplanationData) -> str:
    """The verdict in one sentence: what is the best, and how sure that is.

    Where there are GPUs that are only thought beside the devices of a machine, these are the ones that it is about.
    """
    decision, called = explanation.decision, absent(explanation.devices)
    if called and decision.objective == "time":
        return _beside_absent(explanation, called)
    alone = explanation.devices.get(decision.device) if len(explanation.devices) == 1 else None
    if alone is not None and alone.fits:
        return f"{decision.device}: {_taken(explanation, decision.device)}"
    if decision.speedup is None or decision.confidence is None:
        return decision.reason
    others = [name for name in explanation.devices if name != decision.device]
    than, sure = others[0] if len(others) == 1 else "the next best", f"{sureness(decision.confidence)} sure"
    ratio = f"{format_ratio(decision.speedup)} as fast"
    said = f"{ABOUT_THE_SAME} as {than} ({ratio}, {sure})" if decision.tie else f"{ratio} as {than}, {sure}"
    if decision.objective != "time":
        what = "costs" if decision.objective == "cost" else "takes of energy"
        percent = f"{1.0 / decision.speedup:.0%}" if decision.speedup < 200.0 else "<1%"
        share = f"{percent} of what {than} {what}"
        said = f"{ABOUT_THE_SAME} ({share}, {sure})" if decision.tie else f"{share}, {sure}"
    return f"{decision.device}: {said}"


def absent(devices: Mapping[str, Cost]) -> dict[str, str]:
    """The GPUs that are only thought beside the devices of one machine, by name: what each is called in a sentence.

    None where there are several machines, or no other devices.
    """
    gpus = {name: name.partition("@")[2] for name in devices if "@" in name}
    return gpus if len(gpus) < len(devices) and not any(map(is_cpu, gpus)) else {}


def best_own(explanation: ExplanationData) -> str:
    """The best device of the machine that is compared with: not one that is only thought beside it."""
    decision, called = explanation.decision, absent(explanation.devices)
    devices = {name: row for name, row in explanation.devices.items() if name not in called}
    fitting = {name: row for name, row in devices.items() if row.fits} or devices
    return decision.device if decision.device in devices else min(fitting, key=lambda name: fitting[name].seconds)


def spoken(explanation: ExplanationData, device: str) -> str:
    """What a device is called in a sentence: ``cpu``, ``the Tesla T4``."""
    called = absent(explanation.devices)
    return f"the {called[device]}" if device in called else device


def where(explanation: ExplanationData) -> str:
    """``here``, or ``there`` where the numbers are those of another machine."""
    return "here" if explanation.machine.get("here", True) else "there"


def _taken(explanation: ExplanationData, device: str) -> str:
    """What a device takes: ``3.94 ms a step``, ``1.80 s for 1,024 steps``."""
    row = explanation.devices[device]
    steps = explanation.workload.get("steps") if row.total_seconds is not None else None
    many = f"for {format_count(steps, explanation.unit)}" if steps else f"a {explanation.unit}"
    return f"{format_duration(row.seconds)} {many}"


def _beside_absent(explanation: ExplanationData, called: Mapping[str, str]) -> str:
    """What the best device of the machine takes, and how much faster the GPUs would be that it does not have."""
    rows, name = explanation.devices, best_own(explanation)
    alone = len(rows) == len(called) + 1
    start = f"{name} is the {'only device' if alone else 'best device'} {where(explanation)}"
    time = f": {_taken(explanation, name)}" if rows[name].fits else ", and has too little memory"
    fitting = [other for other in called if rows[other].fits]
    ratios = sorted(rows[name].seconds / rows[other].seconds for other in fitting)
    gpus = "these GPUs" if len(called) > 1 else f"the {called[next(iter(called))]}"
    some = gpus if len(fitting) == len(called) else "GPUs with room"
    some = f"the {called[fitting[0]]}" if len(fitting) == 1 else some
    if not fitting:
        end = f"{gpus} {'have' if len(called) > 1 else 'has'} too little memory for it"
    else:
        slower = ratios[-1] < 1.0
        shown = sorted(1.0 / ratio for ratio in ratios) if slower else ratios
        least, most = format_ratio(shown[0]), format_ratio(shown[-1])
        between = f"{least} to {most}" if least != most else most
        end = f"{some} would take {between} as long" if slower else f"{some} would be {between} as fast"
        if ratios[0] >= 1.0 - TIE and ratios[-1] <= 1.0 + TIE:
            by = f" ({format_ratio(ratios[0])})" if len(called) == 1 else ""
            end = f"{some} would be {ABOUT_THE_SAME}{by}"
    decision, sure = explanation.decision, ""
    if len(rows) == 2 and fitting and decision.confidence is not None and not decision.tie:
        sure = f", {sureness(decision.confidence)} sure"
    return f"{start}{time}; {end}{sure}"


def _first_step(explanation: ExplanationData) -> list[str]:
    """What the first step takes on the accelerator that is chosen or would be repaid, and after how many steps."""
    decision = explanation.decision
    rows = {name: row for name, row in explanation.devices.items() if not is_cpu(name) and row.fits}
    name = decision.device if decision.device in rows else min(rows, key=lambda n: rows[n].step_seconds, default="")
    first = first_step(rows[name]) if name else None
    repaid = decision.break_even_steps
    if first is None or (repaid is None and name != decision.device):
        return []
    later = format_seconds(rows[name].step_seconds)
    guessed = sum(rows[name].one_time[part] for part in rows[name].assumed)
    assumed = " (mostly assumed)" if guessed > 0.5 * first else ""
    ends = f"; repaid after {repaid:,} {explanation.unit}s." if repaid is not None and repaid > 1 else "."
    return [f"The first {explanation.unit} on {name} takes {format_seconds(first)}{assumed}, later ones {later}{ends}"]


#: What takes most of a step, by what bounds it: what such a step is called, and what takes the time.
_BOUND: Mapping[str, tuple[str, str]] = {
    "launches": ("launch-bound", "starting operations"),
    "transfer": ("copy-bound", "copies"),
    "arithmetic": ("compute-bound", "arithmetic"),
    "memory": ("memory-bound", "memory traffic"),
    "waits": ("wait-bound", "waiting for values"),
    "loader": ("loader-bound", "waiting for batches"),
}


def why(explanation: ExplanationData, device: str) -> str:
    """What most of a step goes into: ``launch-bound, 1.10 of 1.50 ms is starting operations``; "" where not known."""
    row = explanation.devices[device]
    if row.bounded_by is None:
        return ""
    bound, what = _BOUND[row.bounded_by]
    seconds = explanation.limits.get(device, {}).get(row.bounded_by)
    if seconds is None:
        return f"{bound}, most of it is {what}"
    return f"{bound}, {format_part(seconds, row.step_seconds)} is {what}"


def turn_line(explanation: ExplanationData) -> str:
    """From which batch size on the choice is another one; "" where that was not asked."""
    turn = explanation.turn
    if turn is None:
        return ""
    several = sum(not is_cpu(name) for name in explanation.devices) > 1
    below, above = (
        "a GPU" if several and not is_cpu(name) else spoken(explanation, name) for name in (turn.below, turn.above)
    )
    steps = explanation.workload.get("steps")
    run = f", for {steps:,} steps" if steps else ""
    if turn.batch is None:
        return f"{below} at every batch from {turn.smallest:,} to {turn.largest:,}{run}"
    return f"{below} up to a batch of about {round(turn.batch):,}, {above} from there on{run}"


def bottleneck_lines(explanation: ExplanationData) -> list[str]:
    """One sentence for each op that takes most of a phase."""
    several = len(explanation.devices) > 1
    return [
        f"{row.op} in {row.layer or 'the model itself'} takes {row.seconds / row.phase_seconds:.0%} of the "
        f"{_PHASES[row.phase]}{f' on {row.device}' if several else ''}: "
        f"{format_seconds(row.seconds)} of {format_seconds(row.phase_seconds)}"
        for row in explanation.bottlenecks
    ]


def sureness(confidence: float) -> str:
    """A probability in words that never claim certainty: ``97%``, ``>99%``."""
    return ">99%" if confidence > 0.99 else f"{confidence:.0%}"


def workload_line(workload: Mapping[str, Any]) -> str:
    """One line on what was priced."""
    if workload.get("parts"):
        return _job_line(workload)
    parts = [str(workload.get("target", "model"))]
    inputs = workload.get("inputs") or []
    if inputs:
        assumed = " (assumed; --batch sets it)" if workload.get("inputs_assumed") else ""
        parts.append("on " + ", ".join(str(item) for item in inputs) + assumed)
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


def _job_line(workload: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{count:,g} × {name}" for name, count in workload["parts"].items())
    repeats = f"; repeated {workload['steps']:,} times" if workload.get("steps") else ""
    return f"Job: {parts}{repeats}."


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


def advice_lines(explanation: ExplanationData) -> list[str]:
    """One sentence per change that would save time: what it saves, where it would then run, and how to make it."""
    lines = []
    for advice in explanation.advice:
        per_row = " per row" if advice.kind == "batch" else ""
        saves = f"{advice.change}: {'~' if advice.guess else ''}{advice.gain:.0%} less time{per_row}"
        times = f"{format_seconds(advice.after)} instead of {format_seconds(advice.before)}"
        elsewhere = f", on {advice.device}" if advice.device != explanation.decision.device else ""
        results = "; this changes the model's results" if advice.changes_results else ""
        how = f": {advice.how}" if advice.how else ""
        lines.append(f"{saves} ({times}{elsewhere}){results}{how}")
    return lines
