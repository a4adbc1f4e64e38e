"""What a reader sees when the script has ended: its models, priced, in a table, and a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from placer import machine
from placer.api import explained
from placer.decision import StepIdentity, StepTime, ask, recorded, traced_step
from placer.errors import PlacerError, first_line
from placer.explanation import Explanation, headings, legend, sureness
from placer.pricing import Cost
from placer.profile import Profile
from placer.run.watcher import WatchedModel
from placer.sections import Section, render
from placer.tracing import Trace
from placer.units import format_seconds

#: A loop that takes this many times what its model takes in it has its time elsewhere.
ELSEWHERE = 2.0
#: A one-time cost is told where it is more than this share of the whole.
WORTH_TELLING = 0.1


@dataclass(frozen=True)
class Answer:
    """What one model would cost on each device; without ``explanation``, ``reason`` says why that is not known."""

    watched: WatchedModel
    explanation: Explanation | None = None
    reason: str = ""

    @property
    def home(self) -> str:
        """The device it ran on, as explanations name it."""
        device = torch.device(self.watched.device)
        return device.type if device.index in (None, 0) else f"{device.type}:{device.index}"


def report(models: Sequence[WatchedModel], width: int, profile: Any, what_if: str | None, explain: bool) -> str:
    """A table of steps by device and what each model would gain, and every explanation where that was asked for."""
    answers = [_answer(watched, profile, what_if, explain) for watched in models]
    explanations = [answer.explanation for answer in answers if answer.explanation]
    rows = {name: row for explanation in explanations for name, row in explanation.devices.items()}
    items = [f"{_name(answer.watched)}: {line}" for answer in answers for line in _sentences(answer)]
    text = render([_table(answers, rows), Section(items=items), Section(after=legend(rows.values()))], width=width)
    if explain:
        text += "".join(f"\n{explanation.to_text(width, full=True, verify='')}" for explanation in explanations)
    return text


def _answer(watched: WatchedModel, profile: Any, what_if: str | None, explain: bool) -> Answer:
    """Price a step on what a model ran on most. Raises nothing."""
    if not watched.inputs:
        return Answer(watched, reason="its inputs were not observed")
    inputs = watched.usual
    if inputs.trace is None or inputs.workload is None:
        return Answer(watched, reason=inputs.refused or "it was gone before a step of it could be traced")
    workload = replace(inputs.workload, args=_shapes(inputs.trace), steps=watched.steps or None, data=inputs.data)
    module = watched.module()
    if inputs.plain and module is not None:  # other steps of it, for advice, can be traced
        workload = replace(workload, model=module)
    try:
        step = traced_step(workload, inputs.trace)
        question = ask(step, profile=profile, what_if=what_if or ())
        explanation = explained(question, advice=explain)
        answer = Answer(watched, explanation)
        if question.recorded:
            _record(answer, step.parts[0].identity, question.candidates.profile)
        return answer
    except Exception as error:  # noqa: BLE001 - the script has ended well; one model without a price is one line
        kind = "" if isinstance(error, PlacerError) else f"{type(error).__name__}: "
        return Answer(watched, reason=kind + first_line(error))


def _record(answer: Answer, identity: StepIdentity, profile: Profile) -> None:
    """What its steps took into the history, for later choices of it and of other sizes of it."""
    watched, steps = answer.watched, answer.watched.real_steps
    row = None if answer.explanation is None else answer.explanation.devices.get(answer.home)
    if row is None or len(steps) < recorded.LEAST_STEPS or watched.recorded_steps == watched.steps:
        return
    watched.recorded_steps = watched.steps  # a notebook may ask again before it goes on
    recorded.record(identity, row, profile, StepTime.of(steps))


def _shapes(trace: Trace) -> tuple[Tensor, ...]:
    """The inputs of a step, without values."""
    return tuple(torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta") for spec in trace.batch)


def _table(answers: Sequence[Answer], rows: dict[str, Cost]) -> Section:
    """Two rows for each model: its steps on each device; and below its name what it runs on."""
    cells = []
    for answer in answers:
        watched, explanation = answer.watched, answer.explanation
        if explanation is None:
            continue
        workload = explanation.workload
        doing = f"training, {workload['optimizer']}" if workload["mode"] == "train" else "inference"
        cast = f", {workload['autocast']}" if workload["autocast"] else ""
        times = [explanation.devices[name].step_seconds if name in explanation.devices else None for name in rows]
        shown = ["-" if seconds is None else format_seconds(seconds) for seconds in (watched.seconds, *times)]
        cells.append([_name(watched), f"{watched.steps:,}" if watched.steps else "-", answer.home, *shown])
        cells.append([f"  {', '.join(workload['inputs'])}, {doing}{cast}", *[""] * (len(shown) + 2)])
    heads = ["model", "steps", "ran on", "measured", *headings(rows).values()]
    return Section("placer: a step of each model", heads=heads, rows=cells)


def _name(watched: WatchedModel) -> str:
    return watched.name if watched.alike == 1 else f"{watched.name} (one of {watched.alike})"


def _sentences(answer: Answer) -> Iterator[str]:
    watched, explanation = answer.watched, answer.explanation
    if explanation is None:
        yield f"not predicted: {answer.reason}"
        return
    yield _verdict(answer, explanation)
    inside, loop = _seconds_inside(answer, explanation), median(watched.loop or [0.0])
    if inside is not None and loop > ELSEWHERE * inside:
        often = f" in {watched.runs_per_step} runs" if watched.runs_per_step > 1 else ""
        yield (
            f"the loop takes {format_seconds(loop)} a step, the model {format_seconds(inside)} of it{often}: the rest "
            "is outside of it (loading, logging, waiting), and no device changes that"
        )


def _seconds_inside(answer: Answer, explanation: Explanation) -> float | None:
    """What of a step of the loop goes by in the model, as measured; None where that was not.

    An accelerator may still be at work when the host goes on: there it is at least what was predicted.
    """
    watched, row = answer.watched, explanation.devices.get(answer.home)
    if not watched.inside:
        return None
    measured = median(watched.inside)
    if answer.home == "cpu":
        return measured
    return None if row is None else max(measured, watched.runs_per_step * row.high)


def _verdict(answer: Answer, explanation: Explanation) -> str:
    """Where it finishes first, the times on both sides, how sure that is, and what would be changed."""
    decision, home, steps = explanation.decision, answer.home, answer.watched.steps
    if len(explanation.devices) < 2:
        return f"{decision.device} is the only device here; --what-if GPU compares it with another"
    others = {name: row for name, row in explanation.devices.items() if name != decision.device}
    other = home if home in others else min(others, key=lambda name: others[name].seconds)
    text = f"about the same on {decision.device}" if decision.tie else f"{decision.device} finishes first"
    text += f": {_time(explanation.devices[decision.device])}"
    text += f" for these {steps:,} steps" if steps else " a step"
    text += f", {_time(others[other])} on {other}"
    if decision.confidence is not None:
        text += f"; {sureness(decision.confidence)} sure"
    if decision.device.partition("@")[0] == "cpu" and decision.break_even_steps is not None:
        text += f"; from {decision.break_even_steps:,} steps on, the other way round"
    if not decision.tie and decision.device != home and decision.device in machine.available_devices():
        text += f"; one line: {_line(answer, decision.device)}"
    return text


def _time(row: Cost) -> str:
    """Of the run, one-time costs included, or of one step where nobody counted them."""
    once = row.one_time_seconds if row.total_seconds is not None else 0.0
    paid_once = f" ({format_seconds(once)} of it once)" if once > WORTH_TELLING * row.seconds else ""
    return format_seconds(row.seconds) + paid_once


def _line(answer: Answer, device: str) -> str:
    """The line of the script that puts the model there."""
    if device == "cpu":
        return 'device = "cpu", for the model and its batches'
    trace = answer.watched.usual.trace
    batch = () if trace is None else trace.batch
    simple = len(batch) == 1 and "float" in batch[0].dtype
    what = str(batch[0].shape) if simple else "batch"
    return f"placement = placer.choose(model, {what}), and placement.batches(loader) for the loader"
