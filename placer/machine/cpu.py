"""The CPU: its usable cores, its name and instructions, and a name for the machine.

torch is imported inside the functions that need it, because ``placer profile path`` does not.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import platform
import re
import subprocess
from pathlib import Path

#: Where Linux says what a container may use: files of version 2, or folders of version 1.
CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """CPU cores this process may use: affinity masks, container quotas and LOKY_MAX_CPU_COUNT taken into account.

    What ``joblib.cpu_count`` says, without importing it: that alone took a tenth of a process's first ``choose``.
    """
    asked = getattr(os, "sched_getaffinity", None)
    counts = [len(asked(0)) if asked is not None else os.cpu_count() or 1, _container_cores()]
    with contextlib.suppress(KeyError, ValueError):
        counts.append(int(os.environ["LOKY_MAX_CPU_COUNT"]))
    return max(1, min(count for count in counts if count is not None))


@functools.cache
def cpu_model() -> str:
    """The CPU's marketing name, or the best description the system gives."""
    system = platform.system()
    name = ""
    try:
        if system == "Linux":
            fields = _cpuinfo()
            name = fields.get("model name") or fields.get("Model") or ""
            if not name and "CPU part" in fields:
                name = f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
        elif system == "Darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            name = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, UnicodeDecodeError, subprocess.SubprocessError):
        name = ""
    name = name or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


@functools.cache
def cpu_version() -> str:
    """Which of the CPUs that share a name this is; hypervisors call many generations "AMD EPYC". "" where unknown."""
    try:
        fields = _cpuinfo() if platform.system() == "Linux" else {}
    except (OSError, UnicodeDecodeError):
        return ""
    words = (("cpu family", "family"), ("model", "model"))
    return " ".join(f"{word} {fields[field]}" for field, word in words if field in fields)


def cpu_instructions() -> str:
    """The vector instructions that torch's kernels use here, as torch names them: ``AVX2``, ``AVX512``, ..."""
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the last of its CPUs."""
    return dict(re.findall(r"^([\w ]+?)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))


@functools.cache
def machine_id() -> str:
    """A file name (without suffix) for this machine, the same as long as host name and CPU stay."""
    node = platform.node().split(".")[0].lower()
    if not node or re.fullmatch(r"[0-9a-f]{12}", node):  # a container's random name: another one at every start
        node = "container"
    digest = hashlib.sha256(f"{node}|{cpu_model()}|{cpu_version()}|{platform.machine()}".encode()).hexdigest()[:10]
    slug = re.sub(r"[^a-z0-9]+", "-", node).strip("-")[:40] or "machine"
    return f"{slug}-{digest}"


def _container_cores() -> int | None:
    """Cores' worth of time that this process's control group grants it, rounded up; None without a limit."""
    for files in ((CGROUP / "cpu.max",), (CGROUP / "cpu/cpu.cfs_quota_us", CGROUP / "cpu/cpu.cfs_period_us")):
        try:
            quota, period = map(int, " ".join(file.read_text() for file in files).split())
        except (OSError, ValueError):  # no such hierarchy, or "max": no limit
            continue
        if quota > 0 and period > 0:
            return math.ceil(quota / period)
    return None
