"""The short answer: a verdict, a bar for each device, why, where it turns, how far such numbers are off, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from placer.decision import Advice, is_cpu
from placer.explanation.data import ExplanationData
from placer.explanation.sections import sections, steps
from placer.explanation.sentences import (
    absent,
    best_own,
    headline,
    kind,
    kind_mark,
    spoken,
    turn_line,
    verdict,
    where,
    why,
    why_briefly,
    workload_line,
)
from placer.explanation.text import drawn, drawn_table, load_rich, plain, wrapped_lines
from placer.pricing import NOT_PREDICTED
from placer.units import format_seconds

#: Most lines of a short answer, blank ones included.
MOST_LINES = 12
#: Blank lines, above and below the bars, where there is room for them.
_BLANKS = 2
#: Columns before the sentences, which have a word each in them.
_INDENT = 10
#: Ends a line of a command that goes on in the next.
_GOES_ON = " \\"
#: What the user runs in the library to time real steps.
IN_PYTHON = 'placer.explain(..., options=placer.Options(measure="always"))'

#: What numbers rest on, in a few words, and in one or two.
_RESTS = {
    "estimated": ("a similar CPU, before placer calibrate", "similar CPU"),
    "published": ("published times", "published"),
    "data sheet": ("the GPU's data sheet", "data sheet"),
}
#: What is shortened where there is no room, in this order: a row's word, which of its forms it then has, and for how
#: many blank lines that is done.
_GIVE_WAY = (
    ("rests on", 1, 2), ("why", 1, 2), ("advice", 1, 2),
    ("why", 2, 1), ("why", 3, 1), ("rests on", 2, 1), ("advice", 2, 1), ("verify", 1, 1),
)  # fmt: skip


class Row(NamedTuple):
    """A sentence with the word before it: its ``forms``, the longest first."""

    word: str
    forms: tuple[str, ...]


def render_short(
    explanation: ExplanationData, *, width: int = 100, color: bool = False, verify: str = IN_PYTHON
) -> str:
    """Text at most ``width`` columns wide; from 70 on, of at most ``MOST_LINES`` lines for up to four devices.

    ``verify`` is what to run to time real steps; "" leaves that out.
    """
    load_rich()
    from rich.text import Text

    bars = steps(explanation)
    rows = list(answer_rows(explanation, verify))
    first = headline(explanation, width)
    room = MOST_LINES - len(wrapped_lines(first, width)) - len(bars.rows)
    forms = {row.word: row.forms for row in rows}
    texts = {word: found[0] for word, found in forms.items()}
    for word, number, wanted in _GIVE_WAY:
        if len(_lines(texts, width)) > room - wanted and number < len(forms.get(word, ())):
            texts[word] = forms[word][number]
    lines = _lines(texts, width)
    blanks = min(max(room - len(lines), 0), _BLANKS)
    parts: list[object] = [Text(first, style="bold")]
    parts += [""] * (blanks == _BLANKS)
    parts += [drawn_table(bars, width)] if bars.rows else []
    parts += [""] * (blanks > 0)
    return plain([*parts, *lines], width=width, color=color)


def render_text(explanation: ExplanationData, *, width: int = 100, color: bool = False, verify: str = "") -> str:
    """The short answer, then all that it rests on: the verdict in full, layers, operators, what a step is made of."""
    load_rich()
    _, *details = verdict(explanation)
    tables = [part for section in sections(explanation) for part in drawn(section, width)]
    rest = plain([*details, workload_line(explanation.workload), "", *tables], width=width, color=color)
    return render_short(explanation, width=width, color=color, verify=verify) + "\n" + rest


def _lines(texts: Mapping[str, str], width: int) -> list[str]:
    """The sentences, wrapped behind their words. A command goes on in the next line as a shell takes it."""
    found: list[str] = []
    for word, text in texts.items():
        command = word == "verify"
        room = width - len(_GOES_ON) * command
        lines = wrapped_lines(f"{word:<{_INDENT}}{text}", room, indent=" " * _INDENT, break_words=not command)
        found += [line + _GOES_ON * (command and line is not lines[-1]) for line in lines]
    return found


def answer_rows(explanation: ExplanationData, verify: str) -> Iterator[Row]:
    """The sentences below the bars, in order."""
    if explanation.workload.get("inputs_assumed"):
        yield _assumed(explanation)
    yield from _why(explanation)
    turn = turn_line(explanation)
    if turn:
        yield Row("turns", (turn,))
    yield from _rests_on(explanation)
    if explanation.advice:
        yield _advice(explanation, explanation.advice[0])
    if explanation.measured:
        yield from _measured(explanation)
    elif verify and explanation.devices and not explanation.parts and not explanation.workload.get("step_function"):
        forms = (verify,) if where(explanation) == "here" else (f"on such a machine: {verify}", verify)
        yield Row("verify", forms)


def _assumed(explanation: ExplanationData) -> Row:
    """The batch that nobody gave, by its first input."""
    first, *others = explanation.workload["inputs"]
    more = f" and {len(others)} more" if others else ""
    return Row("assumes", (f"a batch of {first}{more} (--batch sets it)",))


def _advice(explanation: ExplanationData, best: Advice) -> Row:
    """A change, what it saves, and how to make it."""
    per_row = " per row" if best.kind == "batch" else ""
    short = f"{best.change}: {'~' if best.guess else ''}{best.gain:.0%} less time{per_row}"
    times = f"{format_seconds(best.after)} instead of {format_seconds(best.before)}"
    elsewhere = f", on {best.device}" if best.device != explanation.decision.device else ""
    results = "; this changes the model's results" if best.changes_results else ""
    how = f": {best.how}" if best.how else ""
    briefly = ", and other results" if best.changes_results else ""
    return Row("advice", (f"{short} ({times}{elsewhere}){results}{how}", short + results, short + briefly))


def _why(explanation: ExplanationData) -> Iterator[Row]:
    """What bounds a step on the best device; then on the one it is compared with: the best of the other kind."""
    rows, chosen = explanation.devices, explanation.decision.device
    if chosen not in rows or not why(explanation, chosen):
        return
    called = absent(rows)
    others = [name for name in rows if is_cpu(name) != is_cpu(chosen) and rows[name].fits]
    others = [best_own(explanation)] if chosen in called else others
    told = [chosen, *([min(others, key=lambda name: rows[name].seconds)] if others else [])]
    told = [name for name in told if why(explanation, name)]
    alone = why(explanation, chosen).replace(",", ":", 1)
    if len(rows) == 1:
        yield Row("why", (alone,))
        return
    sentences = "; ".join(f"{spoken(explanation, name)} is {why(explanation, name)}" for name in told)
    briefly = ", ".join(why_briefly(explanation, name) for name in told)
    named = alone.replace(":", f" on {spoken(explanation, chosen)}:", 1)
    yield Row("why", (sentences, briefly, named, alone))


def _rests_on(explanation: ExplanationData) -> Iterator[Row]:
    """What the numbers rest on, one clause for each kind, and how far such numbers are off."""
    groups: dict[str, list[str]] = {}
    for name, row in explanation.devices.items():
        groups.setdefault("seen" if NOT_PREDICTED in row.components else kind(name, row.provenance), []).append(name)
    clauses: list[list[str]] = []
    for what, names in groups.items():
        if what == "seen":
            clauses.append([f"real steps, seen {where(explanation)}"] * 3)
            continue
        mark = kind_mark(names[0], explanation.devices[names[0]].provenance)
        here = f"a calibration {where(explanation)}"
        basis, brief = (f"{mark} {each}".strip() for each in _RESTS.get(what, (here, "calibrated")))
        cpus, gpus = [name for name in names if is_cpu(name)], [name for name in names if not is_cpu(name)]
        usually, off = _off(explanation, cpus or gpus)
        if cpus and gpus:
            pairs = zip((usually, off), _off(explanation, gpus), strict=True)
            usually, off = (f"cpu {of_cpu}, GPU {of_gpu}" for of_cpu, of_gpu in pairs)
        usually, off = (f" ({each})" if each else "" for each in (usually, off))
        clauses.append([basis + usually, basis + off, brief + off])
    if clauses:
        yield Row("rests on", tuple(", ".join(forms) for forms in zip(*clauses, strict=True)))


def _off(explanation: ExplanationData, names: Sequence[str]) -> tuple[str, str]:
    """How far the numbers of these devices are off as a rule, and the same in fewer words."""
    errors = [explanation.usual_errors[name] for name in names if name in explanation.usual_errors]
    medians = [share for error in errors if error.median is not None for share in error.median]
    most = [share for error in errors for share in error.most]
    if medians:
        low, high = f"{min(medians):.0%}", f"{max(medians):.0%}"
        between = high if low == high else f"{low.removesuffix('%')}–{high}"
        return f"usually {between} off", f"{between} off"
    return (f"9 in 10 steps within {max(most):.0%}", f"within {max(most):.0%}") if most else ("", "")


def _measured(explanation: ExplanationData) -> Iterator[Row]:
    """What real steps took on the devices here, and by how much the prediction is longer or shorter."""
    told = []
    for name, row in explanation.measured.items():
        seconds, predicted = format_seconds(row.step_seconds), format_seconds(explanation.devices[name].step_seconds)
        told.append(f"{name} {seconds}, predicted {predicted} ({row.off:+.0%})")
    yield Row("measured", ("; ".join(told),))
