"""``placer doctor``: what torch and the driver see here, what placer knows of it, and what to run next."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from placer.cli.output import result_options, write
from placer.errors import PlacerError
from placer.sections import Fact, Section, render
from placer.units import format_bytes

#: Version of the JSON; keys may be added to it.
SCHEMA = 1
#: Variables that change what is found. Their values are shown: they hold device numbers, paths and switches.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PLACER_HOME", "PLACER_DEVICE", "PLACER_STRICT",
)  # fmt: skip


@click.command("doctor")
@result_options("text", "json")
def command(form: str, output: str | None) -> None:
    """Say what torch and placer find here, and what to run next.

    Touches no device. Paste the text into a bug report: it names no folder of your home. Exit code 1 where something
    that placer needs is broken.
    """
    report = Report(diagnose())
    write(report, form, output)
    if report.values["broken"]:
        raise PlacerError("; ".join(report.values["broken"]))


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
        import torch
    except Exception as error:  # noqa: BLE001  a broken installation may raise anything; that is what is looked for
        why = " ".join(f"{type(error).__name__}: {error}".split())
        broken = [f"torch cannot be imported: {why}"]
        return {**report, "torch": None, "broken": broken, "next": ["reinstall torch"]}
    facts, profile = _profile()
    cpu = {"device": "cpu", "name": machine.cpu_model(), "memory_bytes": machine.memory("cpu")[1]}
    report |= {
        "torch": {
            "version": str(torch.__version__),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": _cudnn(),
            "profiler": bool(torch.profiler.kineto_available()),
            "threads": torch.get_num_threads(),
        },
        "nvml": machine.describe_driver(),
        "fingerprint": machine.fingerprint(),
        "devices": [_device(device, facts, profile) for device in (cpu, *machine.describe_accelerators())],
        "profile": facts,
    }
    broken = [facts["error"]] if facts["state"] == "unreadable" else []
    if not facts["writable"]:
        broken.append(f"no profile can be written to {facts['path']}: set PLACER_HOME to a folder of yours")
    return {**report, "broken": broken, "next": list(_next(report))}


def _cudnn() -> int | None:
    """The version of cuDNN that torch loads; None where it has none, or cannot load it."""
    import torch

    try:
        return torch.backends.cudnn.version() if torch.version.cuda else None
    except RuntimeError:
        return None


def _profile() -> tuple[dict[str, Any], Any]:
    """The facts of this machine's profile, and the Profile itself, or None."""
    from placer import profile
    from placer.errors import ProfileError, ProfileMissing

    path = profile.default_path()
    folder = next((parent for parent in path.parents if parent.exists()), path.parent)
    writable = os.access(path if path.exists() else folder, os.W_OK) and os.access(folder, os.W_OK)
    facts: dict[str, Any] = {"path": str(path), "writable": writable}
    try:
        read = profile.load()
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
        "others_share": read.noise.get(profile.OTHERS),
        "disturbed": read.disturbed,
        "unusable": dict(read.unusable),
    }, read


def _device(device: dict[str, Any], facts: Mapping[str, Any], profile: Any) -> dict[str, Any]:
    """A device as a fingerprint describes it, with what speaks against using it and what an answer would rest on.

    ``usable`` False has a ``reason``. ``knowledge`` is ``calibrated`` (under the name ``calibrated_as``, a twin's
    perhaps), or that of an estimate.
    """
    from placer import decision, machine, pricing
    from placer.errors import ProfileError, UnknownGPU
    from placer.profile import reported_gpu

    name, knowledge, calibrated_as = device["device"], "published", None
    if name != "cpu":
        try:
            knowledge = pricing.device_model(reported_gpu(device).name).provenance
        except UnknownGPU:
            knowledge = "convention"
    refused = decision.unusable(name, profile)
    if refused is None and facts["state"] == "usable":
        try:
            calibrated_as = decision.gather(profile, (name,), here=True).fitted_as.get(name, name)
            knowledge = "calibrated"
        except ProfileError:
            pass  # this device was not calibrated
    return {
        **device,
        "free_bytes": machine.known_free_memory(name),
        "utilization": machine.utilization(name),
        "usable": None if refused is None else False,
        "reason": refused,
        "knowledge": knowledge,
        "calibrated_as": calibrated_as,
    }


def _next(report: Mapping[str, Any]) -> Iterator[str]:
    torch, profile, devices = report["torch"], report["profile"], report["devices"]
    if report["nvml"].get("gpus") and not any(device["device"].startswith("cuda") for device in devices):
        if torch["cuda"] or torch["hip"]:
            yield "see why torch lists no GPU: the driver does; CUDA_VISIBLE_DEVICES may hide it"
        else:
            yield "install a build of torch for CUDA: this one is for the CPU alone, and the driver sees a GPU"
    usable = [device for device in devices if device["usable"] is not False]
    for device in devices:
        if device not in usable:
            yield f"{device['device']} cannot be used: {device['reason']}"
    calibrated = all(device["knowledge"] == "calibrated" for device in usable)
    if profile["state"] != "usable" or not profile["complete"] or not calibrated:
        yield "placer calibrate"
    elif profile["disturbed"]:
        yield "placer calibrate, when the machine is quieter"


@dataclass(frozen=True)
class Report:
    """What was found, as plain values, and its text."""

    values: Mapping[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.values, indent=2) + "\n"

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """What a bug report needs, what is broken, and what to run; without the user's home folder."""
        nothing = ["nothing is missing: placer explain FILE.py:MODEL --batch 32,84"]
        sections = [
            Section(facts=[Fact(fact.word, _without_home(fact.text)) for fact in _facts(self.values)]),
            Section("broken", items=[_without_home(line) for line in self.values["broken"]]),
            Section("next", items=[_without_home(line) for line in self.values["next"] or nothing]),
        ]
        return render(sections, width=width, color=color)


def _facts(report: Mapping[str, Any]) -> Iterator[Fact]:
    """Versions, torch's build, each device, the driver, the profile and the variables."""
    yield Fact("placer", f"{report['placer']}, Python {report['python']}, {report['platform']}")
    torch, nvml, profile = report["torch"], report.get("nvml"), report.get("profile")
    if torch is not None:
        built = [f"{name} {torch[key]}" for name, key in (("CUDA", "cuda"), ("ROCm", "hip")) if torch[key]]
        build = ", ".join(built) or "for the CPU alone"
        yield Fact("torch", f"{torch['version']}, {build}, {torch['threads']} threads")
    for device in report.get("devices", ()):
        yield Fact(device["device"], "; ".join([", ".join(_named(device, report["fingerprint"])), _rests_on(device)]))
    if nvml:
        gpus = ", ".join(str(gpu["name"]) for gpu in nvml.get("gpus", ()))
        yield Fact("driver", nvml.get("error") or f"{nvml['driver']}, up to CUDA {nvml['cuda']}: {gpus}")
    if profile is not None:
        created = f", of {profile['created']}" if "created" in profile else ""
        part = "" if profile.get("complete", True) else ", not complete"
        more = (*profile.get("stale", ()), *profile.get("warnings", ()))
        yield Fact("profile", "; ".join([f"{profile['state']}{created}{part}", profile["path"], *more]))
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    yield Fact("variables", ", ".join(variables) or "none")


def _named(device: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> Iterator[str]:
    """A device's name and memory, and what else tells it from others."""
    yield str(device["name"])
    if device.get("memory_bytes"):
        yield format_bytes(device["memory_bytes"])
    if device["device"] == "cpu":
        yield f"{fingerprint['cores']} cores"
        yield from (str(fingerprint[key]) for key in ("cpu_version", "cpu_instructions") if fingerprint.get(key))
    if device.get("compute_capability"):
        yield f"compute capability {device['compute_capability']}"
    if device.get("driver"):
        yield f"driver {device['driver']}"


def _rests_on(device: Mapping[str, Any]) -> str:
    """What an answer about a device rests on, in a few words."""
    if device["usable"] is False:
        return "cannot be used"
    if device["device"] == "cpu" and device["knowledge"] != "calibrated":
        return "estimated"
    return "not known: the default rule" if device["knowledge"] == "convention" else str(device["knowledge"])


def _without_home(text: str) -> str:
    """A text with the user's home folder as ``~``."""
    try:
        home = str(Path.home())
    except RuntimeError:  # a user without one
        return text
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if len(home) > 1 else text
