"""How fast this machine's CPU is beside the one that a profile was measured on; measured once, remembered in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placer import machine
from placer import profile as profiles
from placer.pricing.other_cpu import CpuSpeeds
from placer.pricing.predict import predict
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

#: What the speeds depend on besides the number of threads and the profile.
_FIELDS = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")


def cpu_speeds(facts: Mapping[str, Any], nearest: Profile, threads: int) -> CpuSpeeds:
    """The speeds of this CPU, of which ``facts`` is the fingerprint, with ``threads`` threads, beside ``nearest``.

    They are measured where none are remembered, in half a second. A file that cannot be read or written costs nothing
    but the next measurement.
    """
    path = speeds_path()
    of = {**{name: facts.get(name) for name in _FIELDS}, "beside": nearest.created}
    known = _read(path)
    by_threads = known["threads"] if known.get("of") == of else {}
    remembered = _speeds(by_threads.get(str(threads)))
    if remembered is not None:
        return remembered
    measured = beside(nearest, machine.measure_speeds(), threads)
    content = {"of": of, "threads": {**by_threads, str(threads): asdict(measured)}}
    with suppress(OSError):
        profiles.replace_file(path, json.dumps(content, indent=1).encode())
    return measured


def beside(nearest: Profile, measured: machine.MeasuredSpeeds, threads: int) -> CpuSpeeds:
    """The speeds of a CPU by what was measured on it with ``threads`` threads.

    How fast it starts ops shows in the small step: in what it took, beside what it takes by the profile ``nearest``.
    """
    slower = measured.small_step_seconds / small_step_seconds(nearest, threads)
    return CpuSpeeds(
        dispatch_seconds=slower * nearest.fit("cpu", threads).rates["dispatch_seconds"],
        flops_per_second=measured.flops_per_second,
        bytes_per_second=measured.bytes_per_second,
    )


def small_step_seconds(profile: Profile, threads: int) -> float:
    """Seconds of the small step, as the profile prices it."""
    model, batch = machine.small_network()
    step = make_workload(model, example=batch, mode="train", optimizer="adam", data="device")
    return predict(trace(step), profile, devices=("cpu",), threads=threads)["cpu"].step_seconds


def speeds_path() -> Path:
    """The file that keeps this machine's speeds."""
    return profiles.data_home() / "speeds" / f"{machine.machine_id()}.json"


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict) and isinstance(content.get("threads"), dict):
            return content
    return {}


def _speeds(values: object) -> CpuSpeeds | None:
    """Speeds as they were written; None for what no measurement gives."""
    if not isinstance(values, dict):
        return None
    try:
        numbers = {name: float(value) for name, value in values.items()}
        found = CpuSpeeds(**numbers)
    except (TypeError, ValueError):
        return None
    return found if all(0.0 < number < math.inf for number in numbers.values()) else None
