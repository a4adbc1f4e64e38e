"""Which accelerators are twins, and which ones this build of torch has no kernels for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from placer.machine import nvml

#: Kernels and containers report a slightly different total after an update; speed does not depend on it.
MEMORY_TOLERANCE = 0.05


def close(old: object, new: object) -> bool:
    """Whether two sizes of memory are of one kind of device; one that is not known (0) is of any."""
    if not isinstance(old, (int, float)) or not isinstance(new, (int, float)):
        return old == new
    return not old or not new or abs(old - new) <= MEMORY_TOLERANCE * max(abs(old), abs(new))


def same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two accelerators, as a fingerprint describes them, are twins: of one name, with as much memory."""
    return bool(a.get("name") == b.get("name")) and close(a.get("memory_bytes"), b.get("memory_bytes"))


def unsupported(facts: Mapping[str, Any]) -> str | None:
    """Why torch cannot use an accelerator that a fingerprint describes so; None where nothing speaks against it.

    Told from versions alone, without a context: the driver runs no CUDA as new as torch's, or torch was built without
    kernels for the GPU's compute capability.
    """
    import torch

    capability = str(facts.get("compute_capability") or "")
    if not torch.version.cuda or not capability:
        return None
    driver, built = nvml.cuda_version(), int(torch.version.cuda.split(".")[0])
    if driver is not None and driver[0] < built:
        return f"its driver runs CUDA {driver[0]}.{driver[1]}, and this torch needs CUDA {built}"
    flags: str = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
    if flags and not runs_on(capability, flags.split()):
        return f"this torch has no kernels for compute capability {capability}"
    return None


def runs_on(capability: str, architectures: Sequence[str]) -> bool:
    """Whether code for ``architectures`` (``sm_80``, ``compute_90``, ``sm_90a``) runs on a GPU of a compute capability.

    Machine code runs on later minor versions of its major version, intermediate code (``compute``) on all later
    versions; code with the suffix ``a`` on its own version, with ``f`` like machine code.
    """
    major, minor = map(int, capability.split("."))
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
        if match is None:
            return True  # a name of later versions of CUDA: nothing can be said
        built = int(match[2]), int(match[3])
        if match[4] == "a":
            usable = built == (major, minor)
        elif match[1] == "compute":
            usable = built <= (major, minor)
        else:
            usable = built[0] == major and built[1] <= minor
        if usable:
            return True
    return False
