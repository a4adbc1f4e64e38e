"""A diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placer.units import format_bytes

#: What an answer about a device rests on where no calibration holds.
_ESTIMATES = {
    "published": ": estimated from what others measured",
    "data sheet": ": estimated from its data sheet",
    "convention": ", and nothing is known of it: choose takes it if the model fits, and predicts nothing",
}
_NOTHING_MISSING = "nothing is missing: placer explain FILE.py:MODEL --batch 32,84"


def render(found: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    from placer.explanation import load_rich, plain

    load_rich()
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for title, rows in _sections(found):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in rows:
            grid.add_row(f"  {label}", value)
        parts += [Text(title, style="bold"), grid, ""]
    parts.append(Text("Next", style="bold"))
    parts += [f"- {line}" for line in found["next"] or [_NOTHING_MISSING]]
    return plain(parts, width=width, color=color)


def _sections(found: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield f"placer {found['placer']}", list(_software(found))
    if found["torch"] is not None:
        yield "Devices", [row for device in found["devices"] for row in _device(device, found["profile"])]
        yield "Profile of this machine", list(_profile(found["profile"]))
    if found["broken"]:
        yield "Broken", [("", line) for line in found["broken"]]


def _software(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "system", f"Python {found['python']}, {found['platform']}"
    torch = found["torch"]
    if torch is not None:
        built = f"CUDA {torch['cuda']}" if torch["cuda"] else f"ROCm {torch['hip']}" if torch["hip"] else "no CUDA"
        cudnn = f", cuDNN {torch['cudnn']}" if torch["cudnn"] else ""
        profiler = "with a profiler" if torch["profiler"] else "without a profiler: ops are timed by waiting"
        yield "torch", f"{torch['version']}, {built}{cudnn}, {profiler}, {torch['threads']} CPU threads"
        yield "driver", _driver(found["nvml"])
    yield from found["environment"].items()


def _driver(nvml: Mapping[str, Any]) -> str:
    if "error" in nvml:
        return f"none of NVIDIA's answers ({nvml['error']})"
    gpus = ", ".join(_gpu(gpu) for gpu in nvml["gpus"]) or "no GPU"
    return f"NVIDIA {nvml['driver'] or 'unknown'}, up to CUDA {nvml['cuda'] or 'unknown'}; NVML sees {gpus}"


def _gpu(gpu: Mapping[str, Any]) -> str:
    return str(gpu["name"] or "a GPU that does not answer")


def _device(device: Mapping[str, Any], profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory = f"{format_bytes(device['memory_bytes'])} of memory" if device.get("memory_bytes") else "memory unknown"
    free = "" if device["free_bytes"] is None else f", {format_bytes(device['free_bytes'])} free"
    busy = "" if device["utilization"] is None else f", {device['utilization']:.0%} busy"
    capability = device.get("compute_capability")
    name = f"{device['name']}{f' ({capability})' if capability else ''}"
    yield device["device"], f"{name}: {memory}{free}{busy}"
    if device["device"] != "cpu" or device["usable"] is not None:
        yield "", _usable(device)
    if device["usable"] is not False:
        yield "", _knowledge(device, profile)
    if device["catalog"]:
        yield "", f"the catalog knows this GPU: {device['catalog']}"


def _usable(device: Mapping[str, Any]) -> str:
    return f"cannot be used: {device['reason']}" if device["usable"] is False else "nothing speaks against using it"


def _knowledge(device: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    if device["knowledge"] != "calibrated":
        why = "its calibration is stale" if profile["state"] == "stale" else "not calibrated"
        return why + _ESTIMATES[device["knowledge"]]
    twin = device["calibrated_as"]
    named = "" if twin == device["device"] else f" as {twin}, which is equal"
    completed = f", completed by what is published of {device['completed_by']}" if device["completed_by"] else ""
    return f"calibrated{named}{completed}"


def _profile(profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "path", profile["path"]
    if profile["state"] == "missing":
        yield "state", "there is none"
        return
    if profile["state"] == "unreadable":
        yield "state", f"cannot be used: {profile['error']}"
        return
    age = "" if profile["age_days"] is None else f", {_age(profile['age_days'])}"
    yield "created", f"{profile['created'] or 'unknown'}{age}"
    state = "usable" if profile["state"] == "usable" else "stale: the machine changed since"
    yield "state", state if profile["complete"] else f"{state}; calibration did not finish"
    yield from _listed("changed", profile["stale"])
    yield from _listed("left out", [f"{name}: {why}" for name, why in profile["unusable"].items()])
    yield from _listed("warnings", profile["warnings"])


def _listed(label: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield ("" if number else label), line


def _age(days: float) -> str:
    if days < 1.0:
        return "less than a day ago"
    return f"{days:.0f} day{'s' if round(days) != 1 else ''} ago"
