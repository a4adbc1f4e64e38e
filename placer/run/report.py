"""What a reader sees when the script has ended: its models, priced, in a table, and a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from placer import explanation as explaining
from placer import machine
from placer.errors import PlacerError, first_line
from placer.explanation import Explanation
from placer.nest import tensors
from placer.pricing import Cost
from placer.printable import printable
from placer.question import explain_workload
from placer.run.watcher import SeenModel
from placer.units import format_seconds
from placer.workload import make_workload, optimizer_classes

#: A loop that takes this many times what its model should has its time elsewhere: more than a prediction is off.
ELSEWHERE = 2.0
#: A one-time cost is told where it is more than this share of the whole.
WORTH_TELLING = 0.1


@dataclass(frozen=True)
class Answer:
    """What one model would cost on each device; without ``explanation``, ``reason`` says why that is not known."""

    seen: SeenModel
    explanation: Explanation | None = None
    reason: str = ""

    @property
    def home(self) -> str:
        """The device it ran on, as explanations name it."""
        device = torch.device(self.seen.device)
        return device.type if device.index in (None, 0) else f"{device.type}:{device.index}"


def render(models: Sequence[SeenModel], width: int, profile: Any, what_if: str | None, explain: bool) -> str:
    """A table of steps by device and what each model would gain, and every explanation where that was asked for."""
    explaining.load_rich()
    answers = [_answer(seen, profile, what_if, explain) for seen in models]
    found = [answer.explanation for answer in answers if answer.explanation]
    rows = {name: row for explanation in found for name, row in explanation.devices.items()}
    parts: list[Any] = [_table(answers, rows)] if rows else []
    parts += [f"- {_name(answer.seen)}: {line}" for answer in answers for line in _sentences(answer)]
    if told := explaining.legend(rows):
        parts += ["", *told]
    text = explaining.plain(parts, width=width)
    return text + "".join(f"\n{explaining.render_text(each, width=width)}" for each in found if explain)


def _answer(seen: SeenModel, profile: Any, what_if: str | None, explain: bool) -> Answer:
    """Price a model on what it ran on most: by its copy, or itself where a step must read values. Raises nothing."""
    if not seen.inputs:
        return Answer(seen, reason="its inputs were not observed")
    reason = seen.refused
    for model in filter(None, (seen.copy, seen.module())):
        try:
            return Answer(seen, _explained(seen, model, profile, what_if, explain))
        except Exception as error:  # noqa: BLE001 - the script has ended well; one model without a price is one line
            reason = ("" if isinstance(error, PlacerError) else f"{type(error).__name__}: ") + first_line(error)
    return Answer(seen, reason=reason or "it is gone, and could not be copied while it was there")


def _explained(
    seen: SeenModel, model: nn.Module, profile: Any, what_if: str | None, explain: bool
) -> Explanation:
    inputs = seen.usual
    optimizer: Any = seen.optimizer if model is seen.copy else None
    if optimizer is None and seen.optimizer is not None:
        name = type(seen.optimizer).__name__.lower()
        optimizer = name if name in optimizer_classes() else None
    workload = make_workload(
        _Called(model), batch=(inputs.args, inputs.kwargs), mode=seen.mode, optimizer=optimizer,
        steps=seen.steps or None, data=inputs.data, autocast=inputs.autocast,
    )  # fmt: skip
    return explain_workload(workload, None, "keep", profile, what_if or (), advice=explain)


class _Called(nn.Module):
    """A model that is called with positional and keyword inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.__name__ = type(model).__name__  # what explanations call it

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.model(*args, **kwargs)


def _table(answers: Sequence[Answer], rows: dict[str, Cost]) -> Any:
    from rich.text import Text

    table = explaining.new_table(
        "placer: a step of each model", ["model", "steps", "ran on", "measured", *explaining.headings(rows).values()]
    )
    for answer in answers:
        seen, found = answer.seen, answer.explanation
        if found is None:
            continue
        workload = found.workload
        doing = f"training, {workload['optimizer']}" if workload["mode"] == "train" else "inference"
        cast = f", {workload['autocast']}" if workload["autocast"] else ""
        called = Text(f"{printable(_name(seen))}\n  {printable(', '.join(workload['inputs']))}, {doing}{cast}")
        times = [found.devices[name].step_seconds if name in found.devices else None for name in rows]
        cells = ["-" if seconds is None else format_seconds(seconds) for seconds in (seen.seconds, *times)]
        table.add_row(called, f"{seen.steps:,}" if seen.steps else "-", answer.home, *cells)
    return table


def _name(seen: SeenModel) -> str:
    return seen.name if seen.alike == 1 else f"{seen.name} (one of {seen.alike})"


def _sentences(answer: Answer) -> Iterator[str]:
    seen, found = answer.seen, answer.explanation
    if found is None:
        yield f"not predicted: {answer.reason}"
        return
    yield _verdict(answer, found)
    row, runs = found.devices.get(answer.home), seen.runs_per_step
    if row is not None and seen.seconds is not None and seen.seconds > ELSEWHERE * runs * row.high:
        often = f", {runs} of them a step" if runs > 1 else ""
        yield (
            f"the loop takes {format_seconds(seen.seconds)} a step, the model {format_seconds(row.step_seconds)}{often}"
            ": the rest is outside of it (loading, logging, waiting), and no device changes that"
        )


def _verdict(answer: Answer, found: Explanation) -> str:
    """Where it finishes first, the times on both sides, how sure that is, and what would be changed."""
    decision, home, steps = found.decision, answer.home, answer.seen.steps
    if len(found.devices) < 2:
        return f"{decision.device} is the only device here; --what-if GPU compares it with another"
    others = {name: row for name, row in found.devices.items() if name != decision.device}
    other = home if home in others else min(others, key=lambda name: others[name].seconds)
    text = f"about the same on {decision.device}" if decision.tie else f"{decision.device} finishes first"
    text += f": {_time(found.devices[decision.device])}"
    text += f" for these {steps:,} steps" if steps else " a step"
    text += f", {_time(others[other])} on {other}"
    if decision.confidence is not None:
        text += f"; {explaining.sureness(decision.confidence)} sure"
    if decision.device.partition("@")[0] == "cpu" and decision.break_even_steps is not None:
        text += f"; from {decision.break_even_steps:,} steps on, the other way round"
    if not decision.tie and decision.device != home and decision.device in machine.available_devices():
        text += f"; one line: {_line(answer, decision.device)}"
    return text


def _time(row: Cost) -> str:
    """Of the run, one-time costs included, or of one step where nobody counted them."""
    once = row.one_time_seconds if row.total_seconds is not None else 0.0
    told = f" ({format_seconds(once)} of it once)" if once > WORTH_TELLING * row.seconds else ""
    return format_seconds(row.seconds) + told


def _line(answer: Answer, device: str) -> str:
    """The line of the script that puts the model there."""
    if device == "cpu":
        return 'device = "cpu", for the model and its batches'
    inputs = answer.seen.usual
    given = list(tensors((inputs.args, inputs.kwargs)))
    simple = len(given) == 1 and given[0].dtype.is_floating_point
    what = str(tuple(given[0].shape)) if simple else "batch"
    return f"placement = placer.choose(model, {what}), and placement.batches(loader) for the loader"
