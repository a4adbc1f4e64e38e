"""What each model of a script would cost on each device, priced from what was watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from placer.api import explained
from placer.decision import StepIdentity, StepTime, ask, objective_of, recorded, traced_step
from placer.errors import PlacerError, first_line
from placer.explanation import Explanation
from placer.profile import Profile
from placer.run.loop import LoopTimes, PricedModel
from placer.run.options import ReportOptions
from placer.run.watched import WatchedModel
from placer.tracing import Trace

#: Models for which advice is asked, those that ran longest.
ADVISED = 3


@dataclass(frozen=True)
class Answer:
    """What one model would cost on each device; without ``explanation``, ``reason`` says why that is not known.

    ``asked`` are the devices that the machine has, and the GPUs that were named.
    """

    watched: WatchedModel
    explanation: Explanation | None = None
    reason: str = ""
    asked: frozenset[str] = frozenset()

    @property
    def home(self) -> str:
        """The device it ran on, as explanations name it."""
        device = torch.device(self.watched.device)
        return device.type if device.index in (None, 0) else f"{device.type}:{device.index}"

    @property
    def priced(self) -> PricedModel | None:
        """The model with its prices, where it has some."""
        return None if self.explanation is None else PricedModel(self.watched, self.explanation, self.home)

    @property
    def loop(self) -> LoopTimes | None:
        """A usual turn of its loop, where that is known."""
        return None if self.priced is None else self.priced.loop

    @property
    def slower(self) -> float | None:
        """How many times as long a step takes where it ran as on the best device that was asked about, by
        prediction."""
        if self.explanation is None or self.home not in self.explanation.devices:
            return None
        rows = self.explanation.devices
        choices = [name for name in rows if name == self.home or (name in self.asked and rows[name].fits)]
        best = min(rows[name].step_seconds for name in choices)
        return rows[self.home].step_seconds / best if best else None


def answers(models: Sequence[WatchedModel], options: ReportOptions, *, kept: bool) -> list[Answer]:
    """An answer for each model, in order; ``kept``: what its steps took is kept for later ones."""
    longest = sorted(models, key=lambda watched: -(watched.seconds or 0.0) * watched.steps)
    advised = [id(watched) for watched in longest[:ADVISED]]
    return [_answer(watched, options, advice=id(watched) in advised, kept=kept) for watched in models]


def _answer(watched: WatchedModel, options: ReportOptions, *, advice: bool, kept: bool) -> Answer:
    """Price a step on what a model ran on most. Raises nothing."""
    if not watched.inputs:
        return Answer(watched, reason="its inputs were not observed")
    inputs = watched.usual
    if inputs.trace is None or inputs.workload is None:
        return Answer(watched, reason=inputs.refused or "it was gone before a step of it could be traced")
    steps = watched.steps or None
    if options.epochs or options.steps_per_epoch:
        steps = None
    workload = replace(inputs.workload, args=_shapes(inputs.trace), steps=steps, data=inputs.data)
    module = watched.module()
    if inputs.plain and module is not None:  # other steps of it, for advice, can be traced
        workload = replace(workload, model=module)
    try:
        step = traced_step(workload, inputs.trace)
        what_if = list(options.what_if) or None
        objective = objective_of("time", options.price, options.watts)
        question = ask(step, profile=options.profile, what_if=what_if, objective=objective)
        asked = [candidate.name for candidate in question.candidates.each if candidate.asked]
        if sum("@" not in name for name in asked) < 2:
            # A short trial does not pay for the start of a GPU that is not here: it is asked about long runs.
            question = replace(question, work=traced_step(replace(workload, steps=None), inputs.trace))
        explanation = explained(question, advice=advice, turn=options.explain, larger=inputs.larger)
        answer = Answer(watched, explanation, asked=frozenset(asked))
        if kept and question.recorded:
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
