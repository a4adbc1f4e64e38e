"""``placer doctor``: what torch and the driver see here, what placer knows of it, and what to run next."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from placer.cli.output import terminal, write_result
from placer.errors import PlacerError
from placer.units import format_bytes

#: Version of the JSON; keys may be added to it.
SCHEMA = 1
#: Variables that change what is found. Their values are shown: they hold device numbers, paths and switches.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PLACER_HOME", "PLACER_DEVICE", "PLACER_STRICT",
)  # fmt: skip
_CALIBRATE = "placer calibrate"
#: What an answer about a device rests on where no calibration holds.
_ESTIMATES = {
    "published": ": estimated from what others measured",
    "data sheet": ": estimated from its data sheet",
    "convention": ", and nothing is known of it: choose takes it if the model fits, and predicts nothing",
}
_NOTHING_MISSING = "nothing is missing: placer explain FILE.py:MODEL --batch 32,84"


@click.command("doctor")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", metavar="FILE", help="Write to FILE instead of stdout.")
def command(form: str, output: str | None) -> None:
    """What torch and the driver see on this machine, what placer knows of it, and what to run next.

    Touches no device. The JSON is what a bug report needs. Exit code 1 where something that placer needs is broken.
    """
    found = diagnose()
    if form == "json":
        text = json.dumps(found, indent=2)
    else:
        width, color = terminal(output)
        text = render(found, width=width, color=color)
    write_result(text, output)
    if found["broken"]:
        raise PlacerError("; ".join(found["broken"]))


def diagnose() -> dict[str, Any]:
    """Everything that is found, as plain values for JSON (``docs/commands/doctor.md`` lists the keys).

    Creates no device context. ``broken`` lists what keeps placer from working, ``next`` what to do about the rest.
    """
    from placer import __version__, machine

    found: dict[str, Any] = {
        "schema": SCHEMA,
        "placer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
    try:
        torch = _torch()
    except Exception as error:  # noqa: BLE001  a broken installation may raise anything; that is what is looked for
        told = " ".join(f"{type(error).__name__}: {error}".split())
        broken = [f"torch cannot be imported: {told}"]
        return {**found, "torch": None, "broken": broken, "next": ["reinstall torch"]}
    profile, read = _profile()
    cpu = {"device": "cpu", "name": machine.cpu_model(), "memory_bytes": machine.memory("cpu")[1]}
    usable = None if profile["state"] == "stale" else read
    devices = [_device(facts, read, usable) for facts in (cpu, *machine.describe_accelerators())]
    found |= {
        "torch": torch, "nvml": machine.describe_driver(), "fingerprint": machine.fingerprint(), "devices": devices,
        "profile": profile,
    }  # fmt: skip
    return {**found, "broken": _broken(profile), "next": _next(found)}


def _torch() -> dict[str, Any]:
    import torch

    cudnn = None
    if torch.version.cuda:
        try:
            cudnn = torch.backends.cudnn.version()
        except RuntimeError:  # its library does not load
            cudnn = None
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn,
        "profiler": bool(torch.profiler.kineto_available()),
        "threads": torch.get_num_threads(),
    }


def _profile() -> tuple[dict[str, Any], Any]:
    """The facts of this machine's profile, and the Profile itself, or None."""
    from placer import profile
    from placer.errors import ProfileError, ProfileMissing

    path = profile.default_path()
    facts: dict[str, Any] = {"path": str(path), "state": "usable", "writable": _writable(path)}
    try:
        read = profile.load(samples=False)
    except ProfileMissing:
        return {**facts, "state": "missing"}, None
    except ProfileError as error:
        return {**facts, "state": "unreadable", "error": str(error)}, None
    stale = profile.changed_fields(read)
    return {
        **facts, "state": "stale" if stale else "usable", "created": read.created,
        "age_days": _age_days(read.created), "complete": read.complete, "stale": list(stale),
        "warnings": list(read.warnings), "unusable": dict(read.unusable),
    }, read  # fmt: skip


def _writable(path: Path) -> bool:
    """Whether a profile can be written there: its folder, or the first one above that exists."""
    folder = next((parent for parent in path.parents if parent.exists()), path.parent)
    return os.access(path if path.exists() else folder, os.W_OK) and os.access(folder, os.W_OK)


def _age_days(created: str) -> float | None:
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (datetime.now(timezone.utc) - moment).total_seconds() / 86400.0


def _device(facts: dict[str, Any], read: Any, profile: Any) -> dict[str, Any]:
    """A device as a fingerprint describes it, with what speaks against using it and what an answer would rest on.

    ``usable`` False has a ``reason``. ``knowledge`` is ``calibrated`` (under the name ``calibrated_as``, a twin's
    perhaps), or that of an estimate. ``completed_by`` is the GPU of the catalog whose published numbers stand where
    calibration measured nothing. ``read`` is the profile as it is, ``profile`` the same if it holds.
    """
    from placer import decision, machine, pricing
    from placer import profile as profiles
    from placer.errors import ProfileError, UnknownGPU

    name = facts["device"]
    knowledge, catalog, calibrated_as, completed_by = "published", None, None, None
    if name != "cpu":
        try:
            known = profiles.find_gpu(str(facts.get("name") or "")).name
            knowledge, catalog = pricing.device_model(known).provenance, profiles.knowledge(known)
        except UnknownGPU:
            knowledge = "convention"
    refused = decision.unusable(name, read)
    if refused is None and profile is not None:
        try:
            fitted_as = decision.gather(profile, (name,), here=True).fitted_as.get(name, name)
            knowledge, calibrated_as = "calibrated", fitted_as
            completed_by = profile.fit(fitted_as).gpu or None
        except ProfileError:  # it was not calibrated
            calibrated_as = None
    return {
        **facts,
        "free_bytes": machine.known_free_memory(name),
        "utilization": machine.utilization(name),
        "usable": None if refused is None else False,
        "reason": refused,
        "knowledge": knowledge,
        "calibrated_as": calibrated_as,
        "completed_by": completed_by,
        "catalog": catalog,
    }


def _broken(profile: Mapping[str, Any]) -> list[str]:
    broken = [profile["error"]] if profile["state"] == "unreadable" else []
    if not profile["writable"]:
        broken.append(f"no profile can be written to {profile['path']}: set PLACER_HOME to a folder of yours")
    return broken


def _next(found: Mapping[str, Any]) -> list[str]:
    profile, devices = found["profile"], found["devices"]
    advice: list[str] = []
    listed = any(device["device"].startswith("cuda") for device in devices)
    if not listed and found["nvml"].get("gpus"):
        if found["torch"]["cuda"] or found["torch"]["hip"]:
            advice.append("see why torch lists no GPU: the driver does; CUDA_VISIBLE_DEVICES may hide it")
        else:
            advice.append("install a build of torch for CUDA: this one is for the CPU alone, and the driver sees a GPU")
    for device in devices:
        if device["usable"] is False:
            remedy = _remedy(device, found)
            advice.append(f"to use {device['device']}: {remedy}; without it, placer chooses among the others")
    known = all(device["knowledge"] == "calibrated" for device in devices if device["usable"] is not False)
    if profile["state"] != "usable" or not profile["complete"] or not known:
        advice.append(_CALIBRATE)
    return advice


def _remedy(device: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    from placer import machine

    versions = (found["nvml"].get("cuda"), found["torch"]["cuda"])
    runs, needed = (int(version.partition(".")[0]) if version else None for version in versions)
    if runs is not None and needed is not None and runs < needed:
        return "update its driver, or install a torch for an older CUDA"
    if machine.unsupported(dict(device)) is not None:  # of the two things that versions tell, the other one
        return "install a torch that is built for its compute capability"
    return "see the reason above"


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
        yield "Devices", [row for device in found["devices"] for row in _device_lines(device, found["profile"])]
        yield "Profile of this machine", list(_profile_lines(found["profile"]))
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
    gpus = ", ".join(str(gpu["name"] or "a GPU that does not answer") for gpu in nvml["gpus"]) or "no GPU"
    return f"NVIDIA {nvml['driver'] or 'unknown'}, up to CUDA {nvml['cuda'] or 'unknown'}; NVML sees {gpus}"


def _device_lines(device: Mapping[str, Any], profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    memory = f"{format_bytes(device['memory_bytes'])} of memory" if device.get("memory_bytes") else "memory unknown"
    free = "" if device["free_bytes"] is None else f", {format_bytes(device['free_bytes'])} free"
    busy = "" if device["utilization"] is None else f", {device['utilization']:.0%} busy"
    capability = device.get("compute_capability")
    yield device["device"], f"{device['name']}{f' ({capability})' if capability else ''}: {memory}{free}{busy}"
    if device["usable"] is False:
        yield "", f"cannot be used: {device['reason']}"
    elif device["knowledge"] != "calibrated":
        why = "its calibration is stale" if profile["state"] == "stale" else "not calibrated"
        yield "", why + _ESTIMATES[device["knowledge"]]
    else:
        twin = device["calibrated_as"]
        named = "" if twin == device["device"] else f" as {twin}, which is equal"
        completed = f", completed by what is published of {device['completed_by']}" if device["completed_by"] else ""
        yield "", f"calibrated{named}{completed}"
    if device["catalog"]:
        yield "", f"the catalog knows this GPU: {device['catalog']}"


def _profile_lines(profile: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "path", profile["path"]
    if profile["state"] == "missing":
        yield "state", "there is none"
        return
    if profile["state"] == "unreadable":
        yield "state", f"cannot be used: {profile['error']}"
        return
    days = profile["age_days"]
    age = "" if days is None else ", less than a day ago" if days < 1.0 else f", {days:.0f} days ago"
    yield "created", f"{profile['created'] or 'unknown'}{age}"
    state = "usable" if profile["state"] == "usable" else "stale: the machine changed since"
    yield "state", state if profile["complete"] else f"{state}; calibration did not finish"
    yield from _listed("changed", profile["stale"])
    yield from _listed("left out", [f"{name}: {why}" for name, why in profile["unusable"].items()])
    yield from _listed("warnings", profile["warnings"])


def _listed(label: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield ("" if number else label), line
