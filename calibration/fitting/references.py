"""Finds the shipped profile that a calibration can learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placer import profile
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.pricing import foreign_family
from placer.profile import SAME_CLASS_WITHIN, Profile, dissimilarity

#: Factor by which a reading may be longer than that of another machine of this class and pace; and up to which it is
#: known what contention makes of a pace (``comparison.PER_READING``): it leaves half of a core.
SAME_PACE, KNOWN_PACE = 1.15, 2.0


def shipped_references() -> tuple[Profile, ...]:
    """The shipped profiles, without their samples."""
    return tuple(profile.load(name, samples=False) for name in profile.shipped())


def expectation(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any], reading: float = 0.0
) -> Expectation | None:
    """What the profile of the most similar machine says of a device; None where none knows such a device.

    ``reading``: seconds of the speed probe's reading at which this machine was measured, 0.0 where there was none. Of
    profiles of one class, made on a quiet and on a contended machine, the one of the nearest pace is taken; of profiles
    that are all equally dissimilar the newest, whose ops are described the closest. One made by another version of
    placer, which describes ops by other features, is passed over.
    """
    current = [
        found for found in known
        if device in found.devices() and foreign_family(found.fit(device, threads)) is None
    ]  # fmt: skip
    if not current:
        return None
    newest_first = sorted(current, key=lambda found: found.created, reverse=True)
    nearest = min(newest_first, key=lambda found: _distance(found, device, threads, fingerprint, reading))
    unlike, pace = _distance(nearest, device, threads, fingerprint, reading)
    same_class = unlike < SAME_CLASS_WITHIN and pace <= math.log(KNOWN_PACE)
    return Expectation(nearest.fit(device, threads), same_class=same_class, name=nearest.name)


def pace_of_class(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any], reading: float
) -> float | None:
    """The usual reading (seconds) of a machine of this class, measured at length, if ``reading`` is of that pace.

    The speed of a quiet machine shows in many hours, not in one minute with other programs around: they make readings
    longer. None makes them shorter; what does is the clock, as where the host has little else to do.
    """
    readings = [
        found.fit(device, threads).rates.get(USUAL_READING, 0.0)
        for found in known
        if device in found.devices() and dissimilarity(found.fingerprint, fingerprint, device) < SAME_CLASS_WITHIN
    ]
    alike = [own for own in readings if 0.0 < own <= reading <= own * SAME_PACE]
    return min(alike, key=lambda own: abs(math.log(reading / own)), default=None)


def _distance(
    found: Profile, device: str, threads: int, fingerprint: Mapping[str, Any], reading: float
) -> tuple[float, float]:
    """(dissimilarity of a profile's machine, log of how far its pace is off), the latter 0.0 for other classes."""
    unlike = dissimilarity(found.fingerprint, fingerprint, device)
    own = found.fit(device, threads).rates.get(USUAL_READING, 0.0)
    comparable = unlike < SAME_CLASS_WITHIN and reading > 0.0 and own > 0.0
    return unlike, abs(math.log(reading / own)) if comparable else 0.0
