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
from placer.decision import StepIdentity, StepTime, ask, is_cpu, recorded, traced_step
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
    rows: dict[str, Cost] = {}
    for explanation in explanations:
        rows.update(explanation.devices)
    items = [f"{_name(answer.watched)}: {line}" for answer in answers for line in _lines(answer)]
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


def _lines(answer: Answer) -> Iterator[str]:
    """Where a model finishes first, where the time of its loop goes if it is elsewhere, and what to change."""
    explanation = answer.explanation
    if explanation is None:
        yield f"not predicted: {answer.reason}"
        return
    yield _verdict(explanation)
    for line in (_why(answer, explanation), _next(answer, explanation)):
        if line:
            yield line


def _verdict(explanation: Explanation) -> str:
    """Where it finishes first, the times on both sides, how sure that is, and from when on that changes."""
    decision = explanation.decision
    text = decision.reason
    if decision.confidence is not None and len(explanation.devices) > 1:
        text += f"; {sureness(decision.confidence)} sure"
    if is_cpu(decision.device) and decision.break_even_steps is not None:
        text += f"; from {decision.break_even_steps:,} steps on, the other way round"
    return text


def _why(answer: Answer, explanation: Explanation) -> str:
    """That most of the loop's time goes by outside of the model; "" where it does not, or nobody knows.

    An accelerator may still be at work when the host goes on: there a model takes at least what was predicted.
    """
    watched, row = answer.watched, explanation.devices.get(answer.home)
    if not watched.inside or (row is None and answer.home != "cpu"):
        return ""
    inside, loop = median(watched.inside), median(watched.loop)
    if row is not None and answer.home != "cpu":
        inside = max(inside, watched.runs_per_step * row.high)
    if loop <= ELSEWHERE * inside:
        return ""
    often = f" in {watched.runs_per_step} runs" if watched.runs_per_step > 1 else ""
    return (
        f"the loop takes {format_seconds(loop)} a step, the model {format_seconds(inside)} of it{often}: the rest "
        "is outside of it (loading, logging, waiting), and no device changes that"
    )


def _next(answer: Answer, explanation: Explanation) -> str:
    """The line of the script that puts the model where it finishes first; "" where it is, or that is not here."""
    decision = explanation.decision
    if decision.tie or decision.device == answer.home or decision.device not in machine.available_devices():
        return ""
    if decision.device == "cpu":
        return 'one line: device = "cpu", for the model and its batches'
    trace = answer.watched.usual.trace
    batch = () if trace is None else trace.batch
    simple = len(batch) == 1 and "float" in batch[0].dtype
    what = str(batch[0].shape) if simple else "batch"
    return f"one line: placement = placer.choose(model, {what}), and placement.batches(loader) for the loader"
