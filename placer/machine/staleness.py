"""Compares the machine that was calibrated with the machine that is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.machine.kinds import close, same_kind

#: Fingerprint fields compared by plain equality, with the words a reader knows.
_PLAIN = {
    "cpu": "CPU",
    "cpu_version": "CPU version",
    "cpu_instructions": "CPU instructions",
    "cores": "usable cores",
    "torch": "torch",
}
#: Fields not every profile has: older ones do not tell CPUs of one name apart.
_OPTIONAL = ("cpu_version", "cpu_instructions")


def differences(then: Mapping[str, Any], now: Mapping[str, Any], calibrated_threads: Sequence[int]) -> tuple[str, ...]:
    """One ``"field: old -> new"`` for every field that makes the old numbers wrong.

    Three differences are not staleness: a number of CPU threads within the range that was calibrated, an accelerator
    that is not visible any more (the numbers of the devices left still hold), and a twin of one that was there.
    """
    found = [
        f"{label}: {_show(then.get(field))} -> {_show(now.get(field))}"
        for field, label in _PLAIN.items()
        if then.get(field) != now.get(field) and not (field in _OPTIONAL and (field not in then or field not in now))
    ]
    old_memory, new_memory = then.get("memory_bytes"), now.get("memory_bytes")
    if not close(old_memory, new_memory):
        found.append(f"memory: {_gib(old_memory)} -> {_gib(new_memory)}")
    old_threads, new_threads = then.get("threads"), now.get("threads")
    if old_threads != new_threads and not _within(new_threads, calibrated_threads):
        found.append(f"threads: {_show(old_threads)} -> {_show(new_threads)}")
    return (*found, *_accelerator_differences(_by_device(then), _by_device(now)))


def _accelerator_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for device, facts in now.items():
        alike = (old for old in then.values() if same_kind(old, facts))
        old = next(alike, then.get(device))
        if old is None:
            found.append(f"accelerator {device}: none -> {_show(facts.get('name'))}")
            continue
        found += [
            f"{label} of {device}: {_show(old.get(field))} -> {_show(facts.get(field))}"
            for field, label in (("name", "name"), ("driver", "driver"))
            if old.get(field) != facts.get(field)
        ]
        if not close(old.get("memory_bytes"), facts.get("memory_bytes")):
            found.append(f"memory of {device}: {_gib(old.get('memory_bytes'))} -> {_gib(facts.get('memory_bytes'))}")
    return found


def _by_device(fingerprint: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {facts["device"]: facts for facts in fingerprint.get("accelerators", ())}


def _within(threads: object, calibrated: Sequence[int]) -> bool:
    return isinstance(threads, int) and bool(calibrated) and min(calibrated) <= threads <= max(calibrated)


def _gib(value: object) -> str:
    return f"{value / 2**30:.1f} GiB" if isinstance(value, (int, float)) else _show(value)


def _show(value: object) -> str:
    return "unknown" if value is None else str(value)
