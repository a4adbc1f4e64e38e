"""What a reader sees when the script has ended: a table of its models, and a sentence for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from placer import machine
from placer.adoption.answers import Answer
from placer.adoption.seen import SeenModel
from placer.explanation import (
    Explanation,
    headings,
    legend,
    load_rich,
    new_table,
    plain,
    render_text,
    sureness,
)
from placer.nest import tensors
from placer.pricing import Cost
from placer.printable import printable
from placer.units import format_seconds

#: A loop that takes this many times what its model should has its time elsewhere: more than a prediction is off.
ELSEWHERE = 2.0
#: A one-time cost is told where it is more than this share of the whole.
WORTH_TELLING = 0.1


def render(answers: Sequence[Answer], *, width: int, whole: bool = False) -> str:
    """A table of steps by device and what each model would gain; ``whole`` adds every explanation."""
    load_rich()
    rows = {name: row for answer in answers if answer.explanation for name, row in answer.explanation.devices.items()}
    parts: list[Any] = [_table(answers, rows)] if rows else []
    parts += [line for answer in answers for line in _sentences(answer)]
    if told := legend(rows):
        parts += ["", *told]
    text = plain(parts, width=width)
    for answer in answers if whole else ():
        if answer.explanation is not None:
            text += f"\n{render_text(answer.explanation, width=width)}"
    return text


def _table(answers: Sequence[Answer], rows: dict[str, Cost]) -> Any:
    from rich.text import Text

    heads = ["model", "steps", "ran on", "measured", *headings(rows).values()]
    table = new_table("placer: a step of each model", heads)
    for answer in answers:
        seen, found = answer.seen, answer.explanation
        if found is None:
            continue
        times = [format_seconds(found.devices[name].step_seconds) if name in found.devices else "-" for name in rows]
        measured = "-" if seen.seconds is None else format_seconds(seen.seconds)
        steps = f"{seen.step_count:,}" if seen.step_count else "-"
        called = Text(f"{printable(name_of(seen))}\n  {printable(_what(found))}")
        table.add_row(called, steps, answer.home, measured, *times)
    return table


def name_of(seen: SeenModel) -> str:
    """The class of a model, and how many of its kind there were."""
    return seen.name if seen.alike == 1 else f"{seen.name} (one of {seen.alike})"


def _what(found: Explanation) -> str:
    workload = found.workload
    inputs = ", ".join(workload["inputs"])
    doing = f"training, {workload['optimizer']}" if workload["mode"] == "train" else "inference"
    cast = f", {workload['autocast']}" if workload["autocast"] else ""
    return f"{inputs}, {doing}{cast}"


def _sentences(answer: Answer) -> Iterator[str]:
    name, found = name_of(answer.seen), answer.explanation
    if found is None:
        yield f"- {name}: not priced: {answer.reason}"
        return
    yield f"- {name}: {_verdict(answer, found)}"
    seconds, row = answer.seen.seconds, found.devices.get(answer.home)
    if seconds is None or row is None:
        return
    runs = answer.seen.runs_per_step
    often = f", {runs} of them a step" if runs > 1 else ""
    if seconds > ELSEWHERE * runs * row.high:
        yield (
            f"- {name}: the loop takes {format_seconds(seconds)} a step, the model {format_seconds(row.step_seconds)}"
            f"{often}: the rest is outside of it (loading, logging, waiting), and no device changes that"
        )


def _verdict(answer: Answer, found: Explanation) -> str:
    """Where it finishes first, the times on both sides, how sure that is, and what would be changed."""
    decision, home = found.decision, answer.home
    if len(found.devices) < 2:
        return f"{decision.device} is the only device here; --what-if GPU compares it with another"
    others = {name: row for name, row in found.devices.items() if name != decision.device}
    other = home if home in others else min(others, key=lambda name: _whole(others[name], answer.steps))
    first = f"about the same on {decision.device}" if decision.tie else f"{decision.device} finishes first"
    sure = "" if decision.confidence is None else f"; {sureness(decision.confidence)} sure"
    return (
        f"{first}: {_time(found.devices[decision.device], answer.steps)}{_span(answer.steps)}, "
        f"{_time(others[other], answer.steps)} on {other}{sure}"
        f"{_later(found)}{'' if decision.tie or decision.device == home else _change(answer, found)}"
    )


def _whole(row: Cost, steps: int | None) -> float:
    """Seconds of the run, one-time costs included, or of one step where nobody counted them."""
    return row.step_seconds if steps is None else row.one_time_seconds + steps * row.step_seconds


def _time(row: Cost, steps: int | None) -> str:
    once = row.one_time_seconds if steps is not None else 0.0
    told = f" ({format_seconds(once)} of it once)" if once > WORTH_TELLING * _whole(row, steps) else ""
    return format_seconds(_whole(row, steps)) + told


def _span(steps: int | None) -> str:
    return " a step" if steps is None else f" for these {steps:,} steps"


def _later(found: Explanation) -> str:
    """From how many steps on the accelerator is ahead, where the CPU is for so few."""
    repaid = found.decision.break_even_steps
    if found.decision.device.partition("@")[0] != "cpu" or repaid is None:
        return ""
    return f"; from {repaid:,} steps on, the other way round"


def _change(answer: Answer, found: Explanation) -> str:
    """The line that would do it, where the device is one of this machine's."""
    device = found.decision.device
    if device not in machine.available_devices():
        return ""
    if device == "cpu":
        return '; one line: device = "cpu", for the model and its batches'
    inputs = answer.seen.usual
    given = list(tensors((inputs.args, inputs.kwargs)))
    simple = len(given) == 1 and given[0].dtype.is_floating_point
    what = str(tuple(given[0].shape)) if simple else "example=batch"
    return f"; one line: placement = placer.choose(model, {what}), and placement.batches(loader) for the loader"
