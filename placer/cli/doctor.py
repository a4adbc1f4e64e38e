"""``placer doctor``: what torch and the driver see here, what placer knows of it, and what to run next."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from placer.cli.output import result_options, terminal, write_result
from placer.errors import PlacerError
from placer.units import format_bytes

#: Version of the JSON; keys may be added to it.
SCHEMA = 1
#: Variables that change what is found. Their values are shown: they hold device numbers, paths and switches.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PLACER_HOME", "PLACER_DEVICE", "PLACER_STRICT",
)  # fmt: skip
#: What torch was built for, and facts of an accelerator: their names in the text.
_BUILT = {"CUDA": "cuda", "ROCm": "hip", "cuDNN": "cudnn"}
_FACTS = {"compute capability": "compute_capability", "driver": "driver"}


@click.command("doctor")
@result_options("text", "json")
def command(form: str, output: str | None) -> None:
    """Say what torch and placer find here, and what to run next.

    Touches no device. Paste the text into a bug report: it names no folder of your home. Exit code 1 where something
    that placer needs is broken.
    """
    report = diagnose()
    width, color = terminal(output)
    write_result(json.dumps(report, indent=2) if form == "json" else render(report, width=width, color=color), output)
    if report["broken"]:
        raise PlacerError("; ".join(report["broken"]))


def diagnose() -> dict[str, Any]:
    """Everything that is found, as plain values for JSON (``docs/commands/doctor.md`` lists the keys).

    Creates no device context. ``broken`` lists what keeps placer from working, ``next`` what to do about the rest.
    """
    from placer import __version__, machine

    report: dict[str, Any] = {
        "schema": SCHEMA,
        "placer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
    try:
        torch = _torch()
    except Exception as error:  # noqa: BLE001  a broken installation may raise anything; that is what is looked for
        why = " ".join(f"{type(error).__name__}: {error}".split())
        broken = [f"torch cannot be imported: {why}"]
        return {**report, "torch": None, "broken": broken, "next": ["reinstall torch"]}
    profile, read = _profile()
    cpu = {"device": "cpu", "name": machine.cpu_model(), "memory_bytes": machine.memory("cpu")[1]}
    usable = None if profile["state"] == "stale" else read
    devices = [_device(facts, read, usable) for facts in (cpu, *machine.describe_accelerators())]
    report |= {
        "torch": torch,
        "nvml": machine.describe_driver(),
        "fingerprint": machine.fingerprint(),
        "devices": devices,
        "profile": profile,
    }
    broken = [profile["error"]] if profile["state"] == "unreadable" else []
    if not profile["writable"]:
        broken.append(f"no profile can be written to {profile['path']}: set PLACER_HOME to a folder of yours")
    return {**report, "broken": broken, "next": _next(report)}


def _torch() -> dict[str, Any]:
    import torch

    try:
        cudnn = torch.backends.cudnn.version() if torch.version.cuda else None
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
    folder = next((parent for parent in path.parents if parent.exists()), path.parent)
    writable = os.access(path if path.exists() else folder, os.W_OK) and os.access(folder, os.W_OK)
    facts: dict[str, Any] = {"path": str(path), "state": "usable", "writable": writable}
    try:
        read = profile.load(samples=False)
    except ProfileMissing:
        return {**facts, "state": "missing"}, None
    except ProfileError as error:
        return {**facts, "state": "unreadable", "error": str(error)}, None
    stale = profile.changed_fields(read)
    return {
        **facts,
        "state": "stale" if stale else "usable",
        "created": read.created,
        "complete": read.complete,
        "stale": list(stale),
        "warnings": list(read.warnings),
        "unusable": dict(read.unusable),
    }, read


def _device(facts: dict[str, Any], read: Any, profile: Any) -> dict[str, Any]:
    """A device as a fingerprint describes it, with what speaks against using it and what an answer would rest on.

    ``usable`` False has a ``reason``. ``knowledge`` is ``calibrated`` (under the name ``calibrated_as``, a twin's
    perhaps), or that of an estimate. ``read`` is the profile as it is, ``profile`` the same if it holds.
    """
    from placer import decision, machine, pricing
    from placer.errors import ProfileError, UnknownGPU
    from placer.profile import reported_gpu

    name = facts["device"]
    knowledge, calibrated_as = "published", None
    if name != "cpu":
        try:
            knowledge = pricing.device_model(reported_gpu(facts).name).provenance
        except UnknownGPU:
            knowledge = "convention"
    refused = decision.unusable(name, read)
    if refused is None and profile is not None:
        try:
            calibrated_as = decision.gather(profile, (name,), here=True).fitted_as.get(name, name)
            knowledge = "calibrated"
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
    }


def _next(report: Mapping[str, Any]) -> list[str]:
    profile, devices = report["profile"], report["devices"]
    advice: list[str] = []
    listed = any(device["device"].startswith("cuda") for device in devices)
    if not listed and report["nvml"].get("gpus"):
        if report["torch"]["cuda"] or report["torch"]["hip"]:
            advice.append("see why torch lists no GPU: the driver does; CUDA_VISIBLE_DEVICES may hide it")
        else:
            advice.append("install a build of torch for CUDA: this one is for the CPU alone, and the driver sees a GPU")
    usable = [device for device in devices if device["usable"] is not False]
    advice += [f"{device['device']} cannot be used: {device['reason']}" for device in devices if device not in usable]
    calibrated = all(device["knowledge"] == "calibrated" for device in usable)
    if profile["state"] != "usable" or not profile["complete"] or not calibrated:
        advice.append("placer calibrate")
    return advice


def render(report: Mapping[str, Any], *, width: int = 100, color: bool = False) -> str:
    """The same in short, at most ``width`` columns wide: what a bug report needs, what is broken, and what to run."""
    from placer.explanation import Section, render_sections

    nothing = ["nothing is missing: placer explain FILE.py:MODEL --batch 32,84"]
    sections = [
        Section("", after=_without_home(report_lines(report))),
        Section("broken", items=_without_home(report["broken"])),
        Section("next", items=_without_home(report["next"] or nothing)),
    ]
    return render_sections(sections, width=width, color=color)


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """A line for each of: versions, torch's build, devices, driver, profile, variables."""
    lines = [f"placer {report['placer']}, Python {report['python']}, {report['platform']}"]
    torch, nvml, profile = report["torch"], report.get("nvml"), report.get("profile")
    if torch is not None:
        built = [f"{name} {torch[key]}" for name, key in _BUILT.items() if torch[key]] or ["for the CPU alone"]
        profiler = "" if torch["profiler"] else ", without its profiler"
        lines.append(f"torch {torch['version']}: {', '.join(built)}, {torch['threads']} threads{profiler}")
    for device in report.get("devices", ()):
        cpu = _cpu(report["fingerprint"]) if device["device"] == "cpu" else ""
        lines.append(f"{device['device']}: {_named(device)}{cpu}; {_rests_on(device)}")
    if nvml:
        gpus = ", ".join(str(gpu["name"]) for gpu in nvml.get("gpus", ()))
        lines.append(f"NVIDIA driver: {nvml.get('error') or '{driver}, up to CUDA {cuda}: '.format(**nvml) + gpus}")
    if profile is not None:
        more = (*profile.get("stale", ()), *profile.get("warnings", ()))
        lines.append(f"profile: {'; '.join([_state(profile), profile['path'], *more])}")
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    return [*lines, f"variables: {', '.join(variables) or 'none'}"]


def _rests_on(device: Mapping[str, Any]) -> str:
    """What an answer about a device rests on, in a few words."""
    if device["usable"] is False:
        return "cannot be used"
    if device["device"] == "cpu" and device["knowledge"] != "calibrated":
        return "estimated"
    return "not known: the default rule" if device["knowledge"] == "convention" else str(device["knowledge"])


def _named(device: Mapping[str, Any]) -> str:
    """A device's name, memory and how busy it is, as far as they are known."""
    parts = [str(device["name"])]
    if device.get("memory_bytes"):
        parts.append(format_bytes(device["memory_bytes"]))
    if device["free_bytes"] is not None:
        parts.append(f"{format_bytes(device['free_bytes'])} free")
    if device["utilization"] is not None:
        parts.append(f"{device['utilization']:.0%} busy")
    parts += [f"{name} {device[key]}" for name, key in _FACTS.items() if device.get(key)]
    return ", ".join(parts)


def _cpu(fingerprint: Mapping[str, Any]) -> str:
    """The cores, version and vector instructions of the CPU."""
    facts = [f"{fingerprint['cores']} cores", fingerprint.get("cpu_version"), fingerprint.get("cpu_instructions")]
    return ", " + ", ".join(str(fact) for fact in facts if fact)


def _state(profile: Mapping[str, Any]) -> str:
    """``missing``; ``usable, of 2026-01-02T03:04:05+00:00``; ``stale, of ..., not complete``."""
    created = [f"of {profile['created']}"] if "created" in profile else []
    return ", ".join([profile["state"], *created, *([] if profile.get("complete", True) else ["not complete"])])


def _without_home(lines: Sequence[str]) -> list[str]:
    """``lines`` with the user's home folder as ``~``."""
    try:
        home = str(Path.home())
    except RuntimeError:  # a user without one
        home = ""
    return [re.sub(rf"{re.escape(home)}(?![\w.-])", "~", line) if len(home) > 1 else line for line in lines]
