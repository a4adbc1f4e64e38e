"""What a reader sees when the script has ended: its models in a table, three lines for each, and one for the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from placer import machine
from placer.decision import TIE, is_cpu
from placer.explanation import (
    Explanation,
    advice_line,
    basis_line,
    bound_of,
    device_words,
    headings,
    headline,
    spoken,
    why_line,
)
from placer.pricing import Cost
from placer.profile import MUCH
from placer.run.answers import Answer, answers
from placer.run.loop import LoopTimes, RunTime, run_time
from placer.run.options import SCHEMA, ReportOptions
from placer.run.watcher import Watcher
from placer.sections import Fact, Section, render
from placer.units import format_count, format_seconds

#: The share of a turn of the loop from which on what takes it bounds the loop.
MOST = 0.5
#: A change that saves less than this share of a turn is not worth naming.
LEAST_GAIN = 0.05


class Next(NamedTuple):
    """What to do, and the share of a turn of the loop that it saves (0: nothing is to be done)."""

    text: str
    gain: float = 0.0


@dataclass(frozen=True)
class Report:
    """All answers, and what the run takes. ``remarks`` are lines on the watching; ``explain`` adds each explanation."""

    answers: Sequence[Answer] = ()
    run: RunTime | None = None
    remarks: Sequence[str] = ()
    explain: bool = False

    @property
    def slower(self) -> float | None:
        """How many times as long the run takes as on the best device that was asked about, by prediction.

        Where there is no loop to tell, that of the model that is placed worst; None where none was predicted.
        """
        if self.run is not None and self.run.home in self.run.devices:
            asked = {self.run.home}.union(*(answer.asked for answer in self.answers))
            seconds = {name: time.seconds for name, time in self.run.devices.items() if name in asked}
            return seconds[self.run.home] / min(seconds.values())
        ratios = [answer.slower for answer in self.answers if answer.slower is not None]
        return max(ratios, default=None)

    def to_text(self, width: int = 100) -> str:
        """A table of steps by device, three lines for each model, and a line for the run."""
        remarks = "".join(f"placer: {line}\n" for line in self.remarks)
        if not self.answers:
            return remarks
        explanations = [answer.explanation for answer in self.answers if answer.explanation]
        rows: dict[str, Cost] = {}
        for explanation in explanations:
            rows.update(explanation.devices)
        sections = [_table(self.answers, rows)]
        sections += [Section(_title(answer), facts=list(_facts(answer))) for answer in self.answers]
        facts = [] if self.run is None else [Fact("The run", run_line(self.run))]
        if explanations:
            facts.append(Fact("Rests on", basis_line(explanations[0])))
        sections.append(Section(facts=facts))
        text = render(sections, width=width)
        if self.explain:
            text += "".join(f"\n{explanation.to_text(width, full=True, verify='')}" for explanation in explanations)
        return remarks + text

    def to_json(self) -> str:
        """Schema 1, as ``docs/commands/run.md`` lists it; indented, ending in a newline."""
        values = {
            "schema": SCHEMA,
            "models": [_plain(answer) for answer in self.answers],
            "run": None if self.run is None else asdict(self.run),
            "slower": self.slower,
            "remarks": list(self.remarks),
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"


def reported(watcher: Watcher, options: ReportOptions) -> Report:
    """What was watched so far, priced."""
    remarks = []
    if watcher.failure:
        remarks.append(f"watching ended early: {watcher.failure}")
    if watcher.more:
        remarks.append(f"only the first {len(watcher.models)} architectures were looked at")
    if not watcher.models:
        remarks.append("no model ran: a model is an nn.Module with parameters that is called with tensors")
    others = watcher.others_share
    if others >= MUCH and watcher.models:
        remarks.append(
            f"other programs had {others:.0%} of the cores meanwhile: what was measured is of a busy machine, "
            "and is not kept for later answers"
        )
    made = answers(watcher.models, options, kept=others < MUCH)
    models = [answer.priced for answer in made if answer.priced is not None]
    run = run_time(models, watcher.loaders, steps_per_epoch=options.steps_per_epoch, epochs=options.epochs)
    return Report(made, run, remarks, options.explain)


def _plain(answer: Answer) -> dict[str, Any]:
    """An answer as plain values."""
    watched, explanation = answer.watched, answer.explanation
    of_watched = {
        "name": watched.name,
        "alike": watched.alike,
        "ran_on": answer.home,
        "steps": watched.steps,
        "measured_seconds": watched.seconds,
    }
    if explanation is None:
        return {**of_watched, "not_predicted": answer.reason}
    following = next_line(answer, explanation)
    return {
        **of_watched,
        "workload": dict(explanation.workload),
        "choice": explanation.decision.device,
        "confidence": explanation.decision.confidence,
        "slower": answer.slower,
        "bound": bound_word(answer, explanation),
        "verdict": verdict_line(answer, explanation),
        "why": loop_line(answer, explanation),
        "next": following.text,
        "gain": following.gain,
        "devices": {name: _of_device(cost) for name, cost in explanation.devices.items()},
    }


def _of_device(cost: Cost) -> dict[str, Any]:
    names = ("step_seconds", "low", "high", "fits", "bounded_by", "provenance")
    return {name: getattr(cost, name) for name in names}


def _table(answers: Sequence[Answer], rows: Mapping[str, Cost]) -> Section:
    """A row for each model: its steps on each device."""
    cells = []
    for answer in answers:
        watched, explanation = answer.watched, answer.explanation
        if explanation is None:
            continue
        times = [explanation.devices[name].step_seconds if name in explanation.devices else None for name in rows]
        shown = ["-" if seconds is None else format_seconds(seconds) for seconds in (watched.seconds, *times)]
        cells.append([watched.name, f"{watched.steps:,}" if watched.steps else "-", answer.home, *shown])
    devices = [heading.partition("@")[2] or heading for heading in headings(rows).values()]
    heads = ["model", "steps", "ran on", "measured", *devices]
    return Section("placer: a step of each model", heads=heads, rows=cells)


def _title(answer: Answer) -> str:
    """The model, and what it ran on: ``Net: 32×84 float32, training, adam``."""
    watched = answer.watched
    name = watched.name if watched.alike == 1 else f"{watched.name} (one of {watched.alike})"
    if answer.explanation is None:
        return name
    workload = answer.explanation.workload
    words = [*workload["inputs"], "training" if workload["mode"] == "train" else "inference"]
    words += [str(workload[key]) for key in ("optimizer", "autocast") if workload[key]]
    return f"{name}: {', '.join(words)}"


# --- three lines ------------------------------------------------------------------------------------------------------


def _facts(answer: Answer) -> Iterator[Fact]:
    """Verdict, Why and Next; of a model without a prediction, why there is none."""
    explanation = answer.explanation
    if explanation is None:
        yield Fact("Verdict", f"not predicted: {answer.reason}")
        return
    yield Fact("Verdict", verdict_line(answer, explanation))
    if why := loop_line(answer, explanation):
        yield Fact("Why", why)
    yield Fact("Next", next_line(answer, explanation).text)


def bound_word(answer: Answer, explanation: Explanation) -> str:
    """What bounds the loop where it ran: loader-bound, script-bound, or what bounds the step of the model."""
    loop = answer.loop
    if loop is not None and loop.waiting > MOST * loop.seconds:
        return "loader-bound"
    if loop is not None and loop.rest > MOST * loop.seconds:
        return "script-bound"
    device = answer.home if answer.home in explanation.devices else explanation.decision.device
    return bound_of(explanation, device)


def verdict_line(answer: Answer, explanation: Explanation) -> str:
    """What bounds it, where it finishes first, by how much, how sure that is, and from when on that changes."""
    decision = explanation.decision
    text = "; ".join(filter(None, (bound_word(answer, explanation), headline(explanation))))
    if is_cpu(decision.device) and decision.break_even_steps is not None:
        text += f"; from {decision.break_even_steps:,} steps on, the other way round"
    return text


def loop_line(answer: Answer, explanation: Explanation) -> str:
    """What takes most of a step, and what a turn of the loop is made of where there is more than the step in it."""
    loop = answer.loop
    lines = [why_line(explanation)]
    if loop is not None and loop.seconds - loop.inside > LEAST_GAIN * loop.seconds:
        often = f" in {answer.watched.runs_per_step} runs" if answer.watched.runs_per_step > 1 else ""
        parts = [f"{format_seconds(loop.inside)} the model{often}"]
        if loop.waiting:
            parts.append(f"{format_seconds(loop.waiting)} waiting for batches")
        if loop.rest:
            parts.append(f"{format_seconds(loop.rest)} the rest of the script")
        lines.append(f"the loop takes {format_seconds(loop.seconds)} a step: {', '.join(parts)}")
    return "; ".join(filter(None, lines))


def next_line(answer: Answer, explanation: Explanation) -> Next:
    """The one thing worth doing: what saves most of a turn of the loop."""
    loop = answer.loop
    changes = [*_of_loader(answer, loop), *_of_device_here(answer, explanation), *_of_step(answer, explanation, loop)]
    best = max(changes, key=lambda change: change.gain, default=Next(""))
    if best.gain >= LEAST_GAIN:
        return best
    return _on_other_gpu(answer, explanation, loop) or Next("nothing: no change that is known saves 5% of the time")


def _share(loop: LoopTimes | None) -> float:
    """The share of a turn of the loop that is the model's."""
    return 1.0 if loop is None or not loop.seconds else loop.inside / loop.seconds


def _of_loader(answer: Answer, loop: LoopTimes | None) -> Iterator[Next]:
    """Workers that load beside the step; where there are as many as cores, loading itself is what takes too long."""
    if loop is None or not loop.waiting:
        return
    workers, cores = answer.watched.workers, machine.usable_cores()
    share = loop.waiting / loop.seconds
    if workers >= cores or cores == 1:
        yield Next(f"a cheaper loader: waiting for batches is {share:.0%} of the time", share)
        return
    more, alone = min(2 * workers or 2, cores), loop.seconds - loop.waiting
    if workers:
        after = max(alone, loop.seconds * workers / more)
    else:
        # On the CPU, workers compute beside the step on the same cores.
        beside = loop.waiting / cores if answer.home == "cpu" else 0.0
        after = max(alone + beside, loop.waiting / more)
    gain = 1.0 - after / loop.seconds
    times = f"{format_seconds(after)} instead of {format_seconds(loop.seconds)} a step"
    yield Next(f"DataLoader(..., num_workers={more}): ~{gain:.0%} less time ({times})", gain)


def _of_device_here(answer: Answer, explanation: Explanation) -> Iterator[Next]:
    """The line of the script that puts the model where it finishes first; none where it is, or that is not here."""
    decision = explanation.decision
    if decision.tie or decision.device == answer.home or decision.device not in machine.available_devices():
        return
    loop = answer.loop
    rows, gain, saves = explanation.devices, LEAST_GAIN, ""
    if answer.home in rows:
        saved = 1.0 - rows[decision.device].step_seconds / rows[answer.home].step_seconds
        gain = saved * _share(loop)
        saves = f" (~{gain:.0%} less time)"
    if decision.device == "cpu":
        yield Next(f'one line: device = "cpu", for the model and its batches{saves}', gain)
        return
    trace = answer.watched.usual.trace
    batch = () if trace is None else trace.batch
    simple = len(batch) == 1 and "float" in batch[0].dtype
    what = str(batch[0].shape) if simple else "batch"
    placed = f"placement = placer.choose(model, {what}), and placement.batches(loader) for the loader"
    yield Next(f"one line: {placed}{saves}", gain)


def _of_step(answer: Answer, explanation: Explanation, loop: LoopTimes | None) -> Iterator[Next]:
    """What makes the step itself faster."""
    for advice in explanation.advice:
        yield Next(advice_line(explanation, advice, where=answer.home), advice.gain * _share(loop))


def _on_other_gpu(answer: Answer, explanation: Explanation, loop: LoopTimes | None) -> Next | None:
    """A GPU that is not here, where it would be faster by more than a tie."""
    rows = explanation.devices
    if answer.home not in rows:
        return None
    elsewhere = [name for name in rows if "@" in name and rows[name].fits]
    best = min(elsewhere, key=lambda name: rows[name].step_seconds, default=answer.home)
    saved = 1.0 - rows[best].step_seconds / rows[answer.home].step_seconds
    gain = saved * _share(loop)
    if gain < TIE:
        return None
    return Next(f"a GPU: {spoken(explanation, best)} would take ~{gain:.0%} less time", gain)


# --- the run ----------------------------------------------------------------------------------------------------------


def run_line(run: RunTime) -> str:
    """An epoch, or what was asked about, on each device; money and energy; and the share that is the loader's."""
    text = f"{_amount(run)}: "
    devices = []
    for name, time in run.devices.items():
        measured = run.measured_seconds if name == run.home else None
        between = (time.low, time.high)
        devices.append(device_words(name, time.seconds, between, time.dollars, time.joules, measured))
    text += ", ".join(devices)
    if run.loader_share is not None:
        text += f"; {run.loader_share:.0%} of it here is waiting for the loader, measured"
    return text


def _amount(run: RunTime) -> str:
    """``an epoch of 500 batches``, ``20 epochs of 500 batches``, ``1,000 steps``."""
    if run.unit == "steps":
        return format_count(run.batches * run.epochs, "step")
    batches = f"{run.batches:,} batch{'' if run.batches == 1 else 'es'}"
    if run.unit == "batches":
        return batches
    return f"an epoch of {batches}" if run.epochs == 1 else f"{run.epochs:,} epochs of {batches}"
