"""What ``placer doctor`` finds: torch, the driver, every device, the profile, and what to run next."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

#: Version of the JSON; keys may be added to it.
SCHEMA = 1
#: Variables that change what is found. Their values are shown: they hold device numbers, paths and switches.
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PLACER_HOME", "PLACER_DEVICE", "PLACER_STRICT",
)  # fmt: skip
_CALIBRATE = "placer calibrate"


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
        broken = f"torch cannot be imported: {_line(error)}"
        return {**found, "torch": None, "broken": [broken], "next": ["reinstall torch"]}
    driver, profile = machine.describe_driver(), _profile()
    devices = [_device(facts, profile["read"], stale=profile["state"] == "stale") for facts in _present()]
    found |= {
        "torch": torch, "nvml": driver, "fingerprint": machine.fingerprint(), "devices": devices,
        "profile": {key: value for key, value in profile.items() if key != "read"},
    }  # fmt: skip
    return {**found, "broken": _broken(found), "next": _next(found)}


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn() if torch.version.cuda else None,
        "profiler": bool(torch.profiler.kineto_available()),
        "threads": torch.get_num_threads(),
    }


def _cudnn() -> int | None:
    """The version torch was built with; None where its library does not load."""
    import torch

    try:
        version: int | None = torch.backends.cudnn.version()
    except RuntimeError:
        return None
    return version


def _profile() -> dict[str, Any]:
    """This machine's profile; ``read`` is the Profile itself, or None."""
    from placer import profile
    from placer.errors import ProfileError, ProfileMissing

    path = profile.default_path()
    facts: dict[str, Any] = {"path": str(path), "state": "usable", "writable": _writable(path), "read": None}
    try:
        read = profile.load(samples=False)
    except ProfileMissing:
        return {**facts, "state": "missing"}
    except ProfileError as error:
        return {**facts, "state": "unreadable", "error": str(error)}
    stale = profile.changed_fields(read)
    return {
        **facts, "state": "stale" if stale else "usable", "read": read, "created": read.created,
        "age_days": _age_days(read.created), "complete": read.complete, "stale": list(stale),
        "warnings": list(read.warnings), "unusable": dict(read.unusable),
    }  # fmt: skip


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


def _present() -> list[dict[str, Any]]:
    """The CPU and every accelerator that torch lists, as a fingerprint describes them."""
    from placer import machine

    cpu = {"device": "cpu", "name": machine.cpu_model(), "memory_bytes": machine.memory("cpu")[1]}
    return [cpu, *machine.describe_accelerators()]


def _device(facts: dict[str, Any], profile: Any, *, stale: bool) -> dict[str, Any]:
    from placer import machine

    name = facts["device"]
    estimate, catalog = ("published", None) if name == "cpu" else _catalog(str(facts.get("name") or ""))
    return {
        **facts,
        "free_bytes": machine.known_free_memory(name),
        "utilization": machine.utilization(name),
        **_knowledge(name, profile, stale=stale, estimate=estimate),
        "catalog": catalog,
    }


def _knowledge(device: str, profile: Any, *, stale: bool, estimate: str) -> dict[str, Any]:
    """``usable`` (None: nothing speaks against it), ``reason``, and the ``knowledge`` that an answer would rest on.

    ``knowledge`` is ``calibrated`` (under the name ``calibrated_as``, a twin's perhaps), or that of the ``estimate``.
    ``completed_by`` is the GPU of the catalog whose published numbers stand where calibration measured nothing.
    """
    from placer import decision
    from placer.errors import ProfileError

    nothing = {"usable": None, "reason": None, "knowledge": estimate, "calibrated_as": None,
               "completed_by": None}  # fmt: skip
    refused = decision.unusable(device, profile)
    if refused is not None:
        return {**nothing, "usable": False, "reason": refused}
    if profile is None or stale:
        return nothing
    try:
        compared = decision.compare(profile, devices=(device,))
    except ProfileError:
        return nothing
    fitted = compared.fitted_as.get(device, device)
    completed_by = profile.fit(fitted).gpu or None
    return {**nothing, "knowledge": "calibrated", "calibrated_as": fitted, "completed_by": completed_by}


def _catalog(name: str) -> tuple[str, str | None]:
    """What an estimate for a GPU by its driver's name rests on, ``published`` or ``data sheet``, and that in words.

    ``convention``, and None, for one that is not in the catalog.
    """
    from placer import pricing, profile
    from placer.errors import UnknownGPU

    try:
        known = profile.find_gpu(name).name
    except UnknownGPU:
        return "convention", None
    return pricing.device_model(known).provenance, profile.knowledge(known)


def _broken(found: dict[str, Any]) -> list[str]:
    profile = found["profile"]
    broken = [profile["error"]] if profile["state"] == "unreadable" else []
    if not profile["writable"]:
        broken.append(f"no profile can be written to {profile['path']}: set PLACER_HOME to a folder of yours")
    return broken


def _next(found: dict[str, Any]) -> list[str]:
    profile, devices = found["profile"], found["devices"]
    advice: list[str] = []
    hidden = len(found["nvml"].get("gpus", ())) if not any(d["device"].startswith("cuda") for d in devices) else 0
    if hidden and not (found["torch"]["cuda"] or found["torch"]["hip"]):
        advice.append("install a build of torch for CUDA: this one is for the CPU alone, and the driver sees a GPU")
    elif hidden:
        advice.append("see why torch lists no GPU: the driver does; CUDA_VISIBLE_DEVICES may hide it")
    advice += [
        f"to use {device['device']}: {_remedy(device, found)}; without it, placer chooses among the others"
        for device in devices
        if device["usable"] is False and device["device"] != "cpu"
    ]
    usable = [d for d in devices if d["usable"] is not False]
    if profile["state"] != "usable" or not profile["complete"] or any(d["knowledge"] != "calibrated" for d in usable):
        advice.append(_CALIBRATE)
    return advice


def _remedy(device: dict[str, Any], found: dict[str, Any]) -> str:
    from placer import machine

    runs, needed = (_major(version) for version in (found["nvml"].get("cuda"), found["torch"]["cuda"]))
    if runs is not None and needed is not None and runs < needed:
        return "update its driver, or install a torch for an older CUDA"
    if machine.unsupported(device) is not None:  # of the two things that versions tell, the other one
        return "install a torch that is built for its compute capability"
    return "see the reason above"


def _major(version: str | None) -> int | None:
    return int(version.partition(".")[0]) if version else None


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
