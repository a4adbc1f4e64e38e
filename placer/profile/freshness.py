"""Whether a profile still describes this machine, what it was measured on, and how unlike two machines are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from placer import machine
from placer.errors import ProfileStale
from placer.profile.profile import Profile


def stale_fields(profile: Profile, current: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed on the machine since calibration, readable: ``("torch: 2.11.0 -> 2.13.0",)``; empty: nothing.

    ``current`` is a ``machine.fingerprint()``.
    """
    return machine.differences(profile.fingerprint, current, profile.threads("cpu"))


def changed_fields(profile: Profile) -> tuple[str, ...]:
    """What makes this machine another one than the profile's, readable; empty: nothing."""
    return stale_fields(profile, machine.fingerprint())


def check_fresh(profile: Profile) -> None:
    """Raise ProfileStale, naming the fields, if the machine changed since calibration."""
    if changed := changed_fields(profile):
        raise ProfileStale(f"the machine changed since calibration ({'; '.join(changed)}); run: placer calibrate")


def describe(profile: Profile) -> dict[str, Any]:
    """What the numbers were measured on, as plain values."""
    known = ("cpu", "cores", "memory_bytes", "accelerators", "torch", "threads")
    facts = {key: profile.fingerprint[key] for key in known if key in profile.fingerprint}
    return {**facts, "calibrated": profile.created, "profile": profile.name}


def notes(profile: Profile) -> tuple[str, ...]:
    """What a reader should know about the profile itself."""
    unfinished = () if profile.complete else ("calibration did not finish; run: placer calibrate",)
    return (*unfinished, *profile.warnings)


def memory_of(profile: Profile, device: str) -> int | None:
    """Bytes of memory that a device of the profile's machine has; None where that is not known."""
    if device == "cpu":
        return int(profile.fingerprint.get("memory_bytes", 0)) or None
    for facts in profile.fingerprint.get("accelerators", ()):
        if facts["device"] == device:
            return int(facts.get("memory_bytes", 0)) or None
    return None


def default_threads(profile: Profile) -> int | None:
    """The number of CPU threads that the profile's machine runs with by default; None where that is not known."""
    threads = profile.fingerprint.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None

#: Dissimilarity below which two machines are of the same class.
SAME_CLASS_WITHIN = 0.05
#: What makes another CPU, and how dissimilar. Vector instructions decide which kernels run, the vendor how fast caches
#: and memory are beside them. Older profiles do not tell CPUs of one name apart.
_CPU = {"cpu": 10.0, "cpu_instructions": 5.0, "cpu_version": 1.0}
_OTHER_VENDOR = 2.0
_VENDORS = ("amd", "intel", "apple", "arm", "neoverse", "ibm")


def dissimilarity(there: Mapping[str, Any], here: Mapping[str, Any], device: str = "cpu") -> float:
    """How unlike two machines are by their fingerprints; 0.0 for the same processor, cores and version of torch."""
    if device != "cpu":
        return 0.0 if _accelerator(there, device) == _accelerator(here, device) else 1.0
    cores = abs(math.log(float(there.get("cores") or 1) / float(here.get("cores") or 1)))
    other_torch = 0.1 * (_release(there) != _release(here))
    vendor = _OTHER_VENDOR * (_vendor(there) != _vendor(here))
    return cores + other_torch + vendor + sum(weight * _differs(there, here, field) for field, weight in _CPU.items())


def _differs(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> bool:
    return field in there and field in here and there[field] != here[field]


def _vendor(fingerprint: Mapping[str, Any]) -> str:
    name = str(fingerprint.get("cpu")).lower()
    return next((vendor for vendor in _VENDORS if vendor in name), "")


def _release(fingerprint: Mapping[str, Any]) -> str:
    """Major and minor version of torch."""
    return ".".join(str(fingerprint.get("torch")).split(".")[:2])


def _accelerator(fingerprint: Mapping[str, Any], device: str) -> str | None:
    listed = fingerprint.get("accelerators", ())
    return next((str(facts.get("name")) for facts in listed if facts["device"] == device), None)
