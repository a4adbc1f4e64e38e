"""Finds the shipped profile that a calibration can learn from (``make_reference`` makes one)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from placer import profile
from placer.calibration.transfer import Expectation
from placer.costs import foreign_family
from placer.profile import Profile


def references() -> tuple[Profile, ...]:
    """The shipped profiles, without their samples."""
    return tuple(profile.load(name, samples=False) for name in profile.shipped())


def expectation(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any]
) -> Expectation | None:
    """What the profile of the most similar machine says of a device; None where none knows such a device.

    A profile made by another version of placer, which describes ops by other features, is passed over.
    """
    current = [
        found for found in known
        if device in found.devices() and foreign_family(found.fit(device, threads)) is None
    ]  # fmt: skip
    if not current:
        return None
    nearest = min(current, key=lambda found: _strangeness(found.fingerprint, fingerprint, device))
    kin = _strangeness(nearest.fingerprint, fingerprint, device) < 0.05
    return Expectation(nearest.fit(device, threads), kin=kin, name=nearest.name)


def _strangeness(there: Mapping[str, Any], here: Mapping[str, Any], device: str) -> float:
    """How unlike two machines are; 0.0 for two of one kind: the same processor, cores and version of torch."""
    if device != "cpu":
        return 0.0 if _accelerator(there, device) == _accelerator(here, device) else 1.0
    cores = abs(math.log(float(there.get("cores") or 1) / float(here.get("cores") or 1)))
    other_torch = 0.1 * (_release(there) != _release(here))
    return cores + other_torch + 10.0 * (there.get("cpu") != here.get("cpu"))


def _release(fingerprint: Mapping[str, Any]) -> str:
    """Major and minor version of torch."""
    return ".".join(str(fingerprint.get("torch")).split(".")[:2])


def _accelerator(fingerprint: Mapping[str, Any], device: str) -> str | None:
    listed = fingerprint.get("accelerators") or ()
    return next((str(facts.get("name")) for facts in listed if facts.get("device") == device), None)
