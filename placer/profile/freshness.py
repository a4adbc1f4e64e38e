"""Whether a profile still describes the machine that is here, and what it was measured on."""

from __future__ import annotations

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
