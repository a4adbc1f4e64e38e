"""The short answer, a line a fact: a verdict, a bar for each device, why, where it turns, how far off, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.decision import is_cpu
from placer.explanation.data import ExplanationData
from placer.explanation.sections import sections, steps
from placer.explanation.sentences import (
    absent,
    advice_lines,
    best_own,
    details,
    headline,
    kind,
    kind_mark,
    spoken,
    turn_line,
    where,
    why,
    workload_line,
)
from placer.explanation.text import drawn, drawn_table, plain, styled, wrapped_lines
from placer.pricing import Cost
from placer.printable import printable
from placer.units import format_seconds

#: Columns before the sentences, which have a word each in them.
_INDENT = 10
#: What the user runs in the library to time real steps.
IN_PYTHON = 'placer.explain(..., options=placer.Options(measure="always"))'

#: What numbers rest on.
_RESTS = {
    "estimated": "a similar CPU, before placer calibrate",
    "published": "published times",
    "data sheet": "the GPU's data sheet",
}


@dataclass(frozen=True)
class Row:
    """A fact: a sentence with the word before it."""

    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.word:<{_INDENT}}{self.text}"


def render_short(
    explanation: ExplanationData, *, width: int = 100, color: bool = False, verify: str = IN_PYTHON
) -> str:
    """Text at most ``width`` columns wide, but for the last line where that is a command: what to run stays one line.

    ``verify`` is what to run to time real steps; "" leaves that out.
    """
    bars = steps(explanation)
    parts: list[object] = [styled(headline(explanation), "bold"), ""]
    if bars.rows:
        parts += [drawn_table(bars, width), ""]
    for row in answer_rows(explanation):
        parts += wrapped_lines(str(row), width, indent=" " * _INDENT)
    text = plain(parts, width=width, color=color)
    if verify and _can_be_verified(explanation):
        elsewhere = "" if where(explanation) == "here" else "on such a machine: "
        text += printable(str(Row("verify", elsewhere + verify))) + "\n"
    return text


def render_text(explanation: ExplanationData, *, width: int = 100, color: bool = False, verify: str = "") -> str:
    """The short answer, then all that it rests on: the first step, layers, operators, what a step is made of."""
    tables = [part for section in sections(explanation) for part in drawn(section, width)]
    rest = plain([*details(explanation), workload_line(explanation.workload), "", *tables], width=width, color=color)
    return render_short(explanation, width=width, color=color, verify=verify) + "\n" + rest


def answer_rows(explanation: ExplanationData) -> Iterator[Row]:
    """The sentences below the bars, in order."""
    if explanation.workload.get("inputs_assumed"):
        yield _assumed(explanation)
    yield from _why(explanation)
    for sentence in explanation.left_out:
        yield Row("note", sentence)
    turn = turn_line(explanation)
    if turn:
        yield Row("turns", turn)
    yield from _rests_on(explanation)
    for best in advice_lines(explanation)[:1]:
        yield Row("advice", best)
    if explanation.measured:
        yield _measured(explanation)


def _can_be_verified(explanation: ExplanationData) -> bool:
    """Whether real steps can be timed, and were not."""
    is_step = explanation.devices and not explanation.parts and not explanation.workload.get("step_function")
    return bool(is_step) and not explanation.measured


def _assumed(explanation: ExplanationData) -> Row:
    """The batch that nobody gave, by its first input."""
    first, *others = explanation.workload["inputs"]
    more = f" and {len(others)} more" if others else ""
    return Row("assumes", f"a batch of {first}{more} (--batch sets it)")


def _why(explanation: ExplanationData) -> Iterator[Row]:
    """What bounds a step on the best device; then on the one it is compared with: the best of the other kind."""
    rows, chosen = explanation.devices, explanation.decision.device
    if chosen not in rows or not why(explanation, chosen):
        return
    if len(rows) == 1:
        yield Row("why", why(explanation, chosen).replace(",", ":", 1))
        return
    others = [name for name in rows if is_cpu(name) != is_cpu(chosen) and rows[name].fits]
    others = [best_own(explanation)] if chosen in absent(rows) else others
    compared = [chosen, *([min(others, key=lambda name: rows[name].seconds)] if others else [])]
    bounds = [f"{spoken(explanation, name)} is {why(explanation, name)}" for name in compared if why(explanation, name)]
    yield Row("why", "; ".join(bounds))


def _rests_on(explanation: ExplanationData) -> Iterator[Row]:
    """What the numbers rest on, one clause for each kind, and how far such numbers are off."""
    groups: dict[str, list[str]] = {}
    for name, row in explanation.devices.items():
        groups.setdefault(_basis(explanation, name, row), []).append(name)
    clauses = []
    for basis, names in groups.items():
        predicted = [name for name in names if name not in explanation.real]
        cpus, gpus = [name for name in predicted if is_cpu(name)], [name for name in predicted if not is_cpu(name)]
        off = _off(explanation, cpus or gpus)
        if cpus and gpus:
            off = f"cpu {off}, GPU {_off(explanation, gpus)}"
        clauses.append(f"{basis} ({off})" if off else basis)
    if clauses:
        yield Row("rests on", ", ".join(clauses))


def _basis(explanation: ExplanationData, name: str, row: Cost) -> str:
    """What a device's numbers rest on, with the mark of predictions."""
    steps = explanation.real.get(name)
    if steps is not None and steps.same_step:
        return f"real steps {steps.said}"
    basis = f"{kind_mark(row)} {_RESTS.get(kind(row), f'a calibration {where(explanation)}')}".strip()
    return basis if steps is None else f"{basis}, with {steps.said}"


def _off(explanation: ExplanationData, names: Sequence[str]) -> str:
    """How far the numbers of these devices are off as a rule; "" where that is not known."""
    errors = [explanation.usual_errors[name] for name in names if name in explanation.usual_errors]
    medians = [share for error in errors if error.median is not None for share in error.median]
    most = [share for error in errors for share in error.most]
    if medians:
        low, high = f"{min(medians):.0%}", f"{max(medians):.0%}"
        between = high if low == high else f"{low.removesuffix('%')}–{high}"
        return f"usually {between} off"
    return f"9 in 10 steps within {max(most):.0%}" if most else ""


def _measured(explanation: ExplanationData) -> Row:
    """What real steps took on the devices here, and by how much the prediction is longer or shorter."""
    times = []
    for name, row in explanation.measured.items():
        seconds, predicted = format_seconds(row.step_seconds), format_seconds(explanation.devices[name].step_seconds)
        times.append(f"{name} {seconds}, predicted {predicted} ({row.off:+.0%})")
    return Row("measured", "; ".join(times))
