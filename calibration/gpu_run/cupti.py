"""The version of CUPTI, the library that torch's recorder sees kernels through."""

from __future__ import annotations

import ctypes
from pathlib import Path


def cupti_version() -> int | None:
    """As the library tells it (13.0 says 130000, or 28 and so on before 12.0); None where it is not loaded here."""
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[5] for line in mapped.splitlines() if "libcupti" in line}
    found = ctypes.c_uint32()
    for path in sorted(paths):
        try:
            if ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(found)) == 0:
                return found.value
        except (OSError, AttributeError):
            continue
    return None
