"""How far predicted steps are off as a rule: errors of the records in ``docs/accuracy.md``, by what numbers rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from placer.decision import PricedPart, Table, is_cpu
from placer.pricing import Prediction, of_known_class
from placer.profile import Profile


class Record(NamedTuple):
    """Errors of whole steps, as shares of the measured time: the median, and what nine in ten stay below.

    ``name`` begins the row of ``docs/accuracy.md`` that has them.
    """

    name: str
    median: float
    most: float


#: Of a CPU: calibrated, and estimated before a calibration.
CALIBRATED_CPU = (
    Record("`cpu-2-core` | AMD EPYC, AVX2", 0.08, 0.20),
    Record("`cpu-avx512-2-core` | AMD EPYC, AVX-512, contended", 0.14, 0.35),
    Record("`cpu-avx512-2-core-calm` | another of that class, quiet at times", 0.09, 0.29),
    Record("`cpu-avx512-2-core-november` | another of that class", 0.09, 0.26),
    Record("`cpu-intel-avx512-2-core` | Intel Xeon", 0.08, 0.20),
    Record("`cpu-amd-zen5-2-core` | AMD EPYC of a class", 0.11, 0.36),
    Record("`cpu-amd-zen5-2-core`, second calibration", 0.09, 0.29),
    Record("`cpu-amd-zen5-2-core`, third calibration", 0.08, 0.25),
)
ESTIMATED_CPU = (
    Record("`cpu-2-core` | AMD EPYC, AVX-512", 0.08, 0.23),
    Record("`cpu-avx512-2-core` (contended)", 0.15, 0.36),
    Record("`cpu-avx512-2-core-calm` | AMD EPYC, AVX2", 0.13, 0.32),
    Record("`cpu-intel-avx512-2-core` | AMD EPYC, AVX-512", 0.15, 0.28),
    Record("`cpu-amd-zen5-2-core` | AMD EPYC, AVX-512", 0.13, 0.47),
)
#: Of a GPU: calibrated; and not calibrated, where the device limits the step, known by published times or only by a
#: data sheet, and where its host does, whose speed is the larger doubt.
CALIBRATED_GPU = (
    Record("H100, calibrated", 0.14, 0.35),
    Record("H200, calibrated", 0.13, 0.32),
    Record("second H200, calibrated", 0.13, 0.30),
)
PUBLISHED_GPU = (Record("device-bound", 0.06, 0.23), Record("networks that no fit saw", 0.08, 0.27))
SHEET_GPU = (Record("GPUs known by their data sheet only", 0.13, 0.33),)
HOST_BOUND_GPU = (
    Record("H100, from what others published", 0.18, 0.40),
    Record("H200, from what others published", 0.25, 0.59),
    Record("second H200, from what others published", 0.19, 0.44),
)


@dataclass(frozen=True)
class UsualError:
    """How far predictions that rest on the same are off, as shares of the measured time, from the best to the worst.

    ``median`` are the median errors of the ``records``, None where only the other is known; ``most`` is what nine in
    ten steps stay below. ``known_class``: of a CPU that was not calibrated, whether a machine of its very class comes
    with placer, so that a calibration brings little; None of all else.
    """

    median: tuple[float, float] | None
    most: tuple[float, float]
    records: tuple[str, ...]
    known_class: bool | None = None


def usual_errors(table: Table, part: PricedPart) -> dict[str, UsualError]:
    """Those of each device of a table, by what bounds a ``part`` of it there."""
    errors = {device: _usual_error(part.predictions[device]) for device in table.costs}
    if "cpu" in errors and errors["cpu"].known_class is not None:
        errors["cpu"] = replace(errors["cpu"], known_class=of_known_class(table.profile.fingerprint))
    return errors


def _usual_error(prediction: Prediction) -> UsualError:
    """That of a device: its calibration's own, of steps that were held out of it; else that of the like in records."""
    provenance, fit = prediction.provenance, prediction.priced.fit
    held_out = None if fit is None or provenance != "calibrated" else fit.interval.get("held_out")
    if held_out is not None:
        share = math.expm1(held_out)
        return UsualError(None, (share, share), ("steps held out of the calibration",))
    if is_cpu(prediction.device):
        return _of(CALIBRATED_CPU) if provenance == "calibrated" else _of(ESTIMATED_CPU, known_class=False)
    if provenance == "calibrated":
        return _of(CALIBRATED_GPU)
    if prediction.bounded_by == "launches":
        return _of(HOST_BOUND_GPU)
    return _of(PUBLISHED_GPU if provenance == "published" else SHEET_GPU)


def _of(records: Sequence[Record], known_class: bool | None = None) -> UsualError:
    medians, most = [record.median for record in records], [record.most for record in records]
    names = tuple(record.name for record in records)
    return UsualError((min(medians), max(medians)), (min(most), max(most)), names, known_class)


def off(errors: Sequence[UsualError]) -> str:
    """How far numbers with these errors are off, in words; of CPUs that were not calibrated, what that would change.

    "" for none.
    """
    medians: list[float] = []
    for error in errors:
        medians += error.median or ()
    most = f"{max(error.most[1] for error in errors):.0%}" if errors else ""
    if not medians:
        return f"9 in 10 steps within {most}" if errors else ""
    usually = f"usually {_between(medians)} off"
    known = [error.known_class for error in errors if error.known_class is not None]
    if not known:
        return usually
    if all(known):
        brings = "its class is known, placer calibrate only makes sure"
    else:
        calibrated = _of(CALIBRATED_CPU)
        brings = f"placer calibrate, a minute: {_between(calibrated.median or ())}, within {calibrated.most[1]:.0%}"
    return f"{usually}, 9 in 10 within {most}; {brings}"


def off_before_calibration(profile: Profile) -> str:
    """The same of the CPU of a profile, as a sentence, if it was not calibrated; else ""."""
    if not any(is_cpu(fit.device) and fit.estimated for fit in profile.fits):
        return ""
    return f"CPU times are {off([_of(ESTIMATED_CPU, of_known_class(profile.fingerprint))])}"


def _between(shares: Sequence[float]) -> str:
    """The least and the largest of some shares: ``8–15%``; one number where they are equal."""
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return high if low == high else f"{low[:-1]}–{high}"
