"""Says in one sentence why a device was chosen."""

from __future__ import annotations

from collections.abc import Mapping

from placer.decision.timed import EQUAL, Timed, counted_seconds
from placer.pricing import NOT_PREDICTED
from placer.units import format_bytes, format_seconds

#: Components named in a reason, in the words of a reader.
_NAMES = {
    "compute": "computing",
    "dispatch": "launching its kernels",
    "launch": "launching its kernels",
    "copy": "copying the batch",
    "sync": "waiting for the device",
    "framework": "the framework's own work",
}


def reason(
    chosen: Timed, best_other: Timed | None, predictions: Mapping[str, Timed], steps: int | None
) -> str:
    """The times that decided it, and what makes the other device slower; memory where that decided it."""
    left_out = min(
        (p for p in predictions.values() if not p.fits and p is not chosen),
        key=lambda p: counted_seconds(p, steps),
        default=None,
    )
    if not chosen.fits:
        return (
            f"{chosen.device}: the fastest, though it needs {format_bytes(chosen.peak_memory_bytes)} of memory and "
            "no device has that much free"
        )
    if left_out is not None and counted_seconds(left_out, steps) < counted_seconds(chosen, steps):
        return (
            f"{chosen.device}: {left_out.device} would be faster ({_times(left_out, steps)} against "
            f"{_times(chosen, steps)}), but does not fit: {_memory(left_out)}"
        )
    if best_other is None:
        only = "there is no other device to choose" if len(predictions) == 1 else "the only device it fits on"
        return f"{chosen.device}: {only}; a step takes {format_seconds(chosen.step_seconds)}"
    if steps is not None and best_other.step_seconds < chosen.step_seconds:
        return _one_time_reason(chosen, best_other, steps)
    if steps is not None and _same_step(chosen, best_other):
        ahead = counted_seconds(chosen, steps) < counted_seconds(best_other, steps)
        if ahead:
            return _one_time_reason(chosen, best_other, steps)
    text = (
        f"{chosen.device}: a step takes {format_seconds(chosen.step_seconds)} there and "
        f"{format_seconds(best_other.step_seconds)} on {best_other.device}"
    )
    return text + _main_cost(chosen, best_other)


def _memory(prediction: Timed) -> str:
    """What a workload needs of a device, and could have: what is free there, and what it holds already."""
    needed = f"it needs {format_bytes(prediction.peak_memory_bytes)} of memory"
    available = prediction.available_memory_bytes
    return needed if available is None else f"{needed} and can have {format_bytes(max(available, 0))}"


def _same_step(a: Timed, b: Timed) -> bool:
    return abs(a.step_seconds - b.step_seconds) <= EQUAL * max(a.step_seconds, b.step_seconds)


def _one_time_reason(chosen: Timed, other: Timed, steps: int) -> str:
    plural = "step" if steps == 1 else "steps"
    return (
        f"{chosen.device}: {steps:,} {plural} take {format_seconds(counted_seconds(chosen, steps))} there and "
        f"{format_seconds(counted_seconds(other, steps))} on {other.device}, which needs "
        f"{format_seconds(other.one_time_seconds)} to start"
    )


def _times(prediction: Timed, steps: int | None) -> str:
    if steps is None:
        return f"{format_seconds(prediction.step_seconds)} a step"
    return f"{format_seconds(counted_seconds(prediction, steps))} in all"


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
