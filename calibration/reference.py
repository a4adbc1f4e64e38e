"""Finds the shipped profile that a calibration can learn from (``make_reference`` makes one)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placer import profile
from placer.calibration.pulse import USUAL_BEAT
from placer.calibration.transfer import Expectation
from placer.costs import foreign_family
from placer.profile import Profile

#: Strangeness below which two machines are of one kind.
SAME_KIND = 0.05
#: Factor within which the beats of two machines of one kind are of much the same pace. Neighbours on every core make
#: a beat half as long again and more.
SAME_PACE = 1.25
#: What makes another CPU, and how strange that is. Older profiles do not tell CPUs of one name apart.
_CPU = {"cpu": 10.0, "cpu_instructions": 5.0, "cpu_version": 1.0}


def references() -> tuple[Profile, ...]:
    """The shipped profiles, without their samples."""
    return tuple(profile.load(name, samples=False) for name in profile.shipped())


def expectation(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any], beat: float = 0.0
) -> Expectation | None:
    """What the profile of the most similar machine says of a device; None where none knows such a device.

    ``beat``: seconds of the beat at which this machine was measured (see ``pulse``), 0.0 where it was not felt. Two
    machines of one kind are kin at one pace only: a busy neighbour slows each op down in a way of its own, so there may
    be a profile for each. One made by another version of placer, which describes ops by other features, is passed over.
    """
    current = [
        found for found in known
        if device in found.devices() and foreign_family(found.fit(device, threads)) is None
    ]  # fmt: skip
    if not current:
        return None

    def apart(found: Profile) -> tuple[float, float]:
        own = found.fit(device, threads).rates.get(USUAL_BEAT, 0.0)
        pace = abs(math.log(beat / own)) if beat and own else 0.0
        return _strangeness(found.fingerprint, fingerprint, device), pace

    nearest = min(current, key=lambda found: sum(apart(found)))
    kind, pace = apart(nearest)
    return Expectation(
        nearest.fit(device, threads), kin=kind < SAME_KIND and pace <= math.log(SAME_PACE), name=nearest.name
    )


def _strangeness(there: Mapping[str, Any], here: Mapping[str, Any], device: str) -> float:
    """How unlike two machines are; 0.0 for two of one kind: the same processor, cores and version of torch."""
    if device != "cpu":
        return 0.0 if _accelerator(there, device) == _accelerator(here, device) else 1.0
    cores = abs(math.log(float(there.get("cores") or 1) / float(here.get("cores") or 1)))
    other_torch = 0.1 * (_release(there) != _release(here))
    return cores + other_torch + sum(weight * _differs(there, here, field) for field, weight in _CPU.items())


def _differs(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> bool:
    return field in there and field in here and there[field] != here[field]


def _release(fingerprint: Mapping[str, Any]) -> str:
    """Major and minor version of torch."""
    return ".".join(str(fingerprint.get("torch")).split(".")[:2])


def _accelerator(fingerprint: Mapping[str, Any], device: str) -> str | None:
    listed = fingerprint.get("accelerators") or ()
    return next((str(facts.get("name")) for facts in listed if facts.get("device") == device), None)
