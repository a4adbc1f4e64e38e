"""Predictions in, one choice out: which device finishes first, how sure that is, and after how many steps it pays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from placer.decision.threads import ThreadOption
from placer.pricing import NOT_PREDICTED
from placer.units import format_bytes, format_seconds

#: A 90 % interval of a normal distribution reaches this many standard deviations to either side.
Z_90 = 1.6448536269514722

#: Below this difference two predictions are called equal, and the CPU, the device with fewer surprises, is taken.
_EQUAL = 1e-9

#: Components named in a reason, in the words of a reader.
_NAMES = {
    "compute": "computing",
    "dispatch": "launching its kernels",
    "launch": "launching its kernels",
    "copy": "copying the batch",
    "sync": "waiting for the device",
    "framework": "the framework's own work",
}


class Timed(Protocol):
    """What a decision asks of a ``Prediction``, or of the row that an explanation keeps of one."""

    @property
    def device(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def step_seconds(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def one_time_seconds(self) -> float: ...
    @property
    def components(self) -> Mapping[str, float]: ...
    @property
    def peak_memory_bytes(self) -> int: ...
    @property
    def fits(self) -> bool: ...


@dataclass(frozen=True)
class Decision:
    """The chosen device.

    ``threads`` is the number of CPU threads the choice was made for. ``confidence`` is the probability that the chosen
    device is faster than the best other one that fits (1.0 when there is no other, None when nothing was predicted).
    ``break_even_steps`` is how many steps repay the accelerator's one-time cost, None when none do or none need to.
    ``speedup`` is the time on the best other device divided by the time on the chosen one. ``thread_options`` are the
    numbers of CPU threads that were compared, ascending; empty unless that was asked for.
    """

    device: str
    threads: int
    confidence: float | None
    reason: str
    break_even_steps: int | None = None
    speedup: float | None = None
    thread_options: tuple[ThreadOption, ...] = ()


def decide(predictions: Mapping[str, Timed], steps: int | None) -> Decision:
    """Choose the device with the smallest time for ``steps`` steps (None: a long run, so the step time alone decides).

    Devices on which the workload does not fit in memory are left out; if it fits on none, the one with the smallest
    time is still chosen, and the reason says so.

    Raises:
        ValueError: no predictions.
    """
    if not predictions:
        raise ValueError("decide() needs the prediction of at least one device")
    fitting = {name: p for name, p in predictions.items() if p.fits}
    candidates = fitting or dict(predictions)
    ranked = sorted(candidates.values(), key=lambda p: (_cost(p, steps), not _is_cpu(p.device)))
    chosen = ranked[0]
    for other in ranked[1:]:
        if _is_cpu(other.device) and _cost(other, steps) <= _cost(chosen, steps) * (1 + _EQUAL):
            chosen = other
    others = [p for p in ranked if p is not chosen]
    best_other = others[0] if others else None
    return Decision(
        device=chosen.device,
        threads=chosen.threads,
        confidence=1.0 if best_other is None else probability_faster(chosen, best_other, steps),
        reason=_reason(chosen, best_other, predictions, steps),
        break_even_steps=_break_even(predictions, chosen, best_other),
        speedup=None if best_other is None else _ratio(_cost(best_other, steps), _cost(chosen, steps)),
    )


def probability_faster(chosen: Timed, other: Timed, steps: int | None = None) -> float:
    """The probability that ``chosen`` takes less time than ``other``, each log-normal with the 90 % interval it states.

    With ``steps``, the one-time costs count too and dampen the relative uncertainty of the whole, as they are not
    part of the interval.
    """
    gap = _log(_cost(other, steps)) - _log(_cost(chosen, steps))
    spread = math.hypot(_sigma(chosen, steps), _sigma(other, steps))
    if spread == 0.0:
        return 0.5 if gap == 0.0 else float(gap > 0.0)
    return 0.5 * (1.0 + math.erf(gap / spread / math.sqrt(2.0)))


def break_even_steps(accelerator: Timed, cpu: Timed) -> int | None:
    """The first number of steps after which ``accelerator`` is ahead; None if it never is."""
    saved = cpu.step_seconds - accelerator.step_seconds
    if saved <= 0.0:
        return None
    extra = accelerator.one_time_seconds - cpu.one_time_seconds
    if extra <= 0.0:
        return 1
    return math.floor(extra / saved) + 1


def _cost(prediction: Timed, steps: int | None) -> float:
    """Seconds that count: of one step in a long run, of everything otherwise."""
    if steps is None:
        return prediction.step_seconds
    return prediction.one_time_seconds + steps * prediction.step_seconds


def _sigma(prediction: Timed, steps: int | None) -> float:
    """Standard deviation of the log of the time that counts."""
    if not 0.0 < prediction.low < prediction.high:
        return 0.0
    sigma = math.log(prediction.high / prediction.low) / (2.0 * Z_90)
    if steps is None:
        return sigma
    total = _cost(prediction, steps)
    return sigma * (steps * prediction.step_seconds / total) if total > 0.0 else sigma


def _log(seconds: float) -> float:
    return math.log(max(seconds, 1e-12))


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0.0 else None


def _is_cpu(device: str) -> bool:
    return device.partition("@")[0].partition(":")[0] == "cpu"  # another machine's is called cpu@its-profile


def _break_even(predictions: Mapping[str, Timed], chosen: Timed, best_other: Timed | None) -> int | None:
    """Of the CPU (the chosen one of several) and the accelerator that was chosen, or that came closest to it."""
    cpus = [p for name, p in predictions.items() if _is_cpu(name) and p.fits]
    if not cpus or best_other is None:
        return None
    cpu, accelerator = (chosen, best_other) if _is_cpu(chosen.device) else (cpus[0], chosen)
    return None if _is_cpu(accelerator.device) else break_even_steps(accelerator, cpu)


def _reason(
    chosen: Timed, best_other: Timed | None, predictions: Mapping[str, Timed], steps: int | None
) -> str:
    left_out = min(
        (p for p in predictions.values() if not p.fits and p is not chosen),
        key=lambda p: _cost(p, steps),
        default=None,
    )
    if not chosen.fits:
        return (
            f"{chosen.device}: the fastest, though it needs {format_bytes(chosen.peak_memory_bytes)} of memory and "
            "no device has that much free"
        )
    if left_out is not None and _cost(left_out, steps) < _cost(chosen, steps):
        return (
            f"{chosen.device}: {left_out.device} would be faster ({_times(left_out, steps)} against "
            f"{_times(chosen, steps)}), but does not fit: it needs {format_bytes(left_out.peak_memory_bytes)} of memory"
        )
    if best_other is None:
        only = "there is no other device to choose" if len(predictions) == 1 else "the only device it fits on"
        return f"{chosen.device}: {only}; a step takes {format_seconds(chosen.step_seconds)}"
    if steps is not None and best_other.step_seconds < chosen.step_seconds:
        return _one_time_reason(chosen, best_other, steps)
    if steps is not None and _cost(chosen, steps) < _cost(best_other, steps) and _same_step(chosen, best_other):
        return _one_time_reason(chosen, best_other, steps)
    text = (
        f"{chosen.device}: a step takes {format_seconds(chosen.step_seconds)} there and "
        f"{format_seconds(best_other.step_seconds)} on {best_other.device}"
    )
    return text + _main_cost(chosen, best_other)


def _same_step(a: Timed, b: Timed) -> bool:
    return abs(a.step_seconds - b.step_seconds) <= _EQUAL * max(a.step_seconds, b.step_seconds)


def _one_time_reason(chosen: Timed, other: Timed, steps: int) -> str:
    plural = "step" if steps == 1 else "steps"
    return (
        f"{chosen.device}: {steps:,} {plural} take {format_seconds(_cost(chosen, steps))} there and "
        f"{format_seconds(_cost(other, steps))} on {other.device}, which needs "
        f"{format_seconds(other.one_time_seconds)} to start"
    )


def _times(prediction: Timed, steps: int | None) -> str:
    if steps is None:
        return f"{format_seconds(prediction.step_seconds)} a step"
    return f"{format_seconds(_cost(prediction, steps))} in all"


def _main_cost(chosen: Timed, other: Timed) -> str:
    """What makes the other device slower: the component that differs most, if it alone explains half of the difference.

    What a measurement adds to the predicted ones explains nothing.
    """
    gap = other.step_seconds - chosen.step_seconds
    known = {name: seconds for name, seconds in other.components.items() if name != NOT_PREDICTED}
    if gap <= 0.0 or not known:
        return ""
    name, seconds = max(known.items(), key=lambda item: item[1] - chosen.components.get(item[0], 0.0))
    if seconds - chosen.components.get(name, 0.0) < 0.5 * gap:
        return ""
    return f", where {_NAMES.get(name, name)} alone takes {format_seconds(seconds)}"
