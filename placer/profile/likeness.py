"""How unlike two machines are, so that what is known of one can serve the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Dissimilarity below which two machines are of the same class.
SAME_CLASS_WITHIN = 0.05
#: What makes another CPU, and how dissimilar. Vector instructions decide which kernels run, the vendor how fast caches
#: and memory are beside them. Older profiles do not tell CPUs of one name apart.
_CPU = {"cpu": 10.0, "cpu_instructions": 5.0, "cpu_version": 1.0}
_OTHER_VENDOR = 2.0
_VENDORS = ("amd", "intel", "apple", "arm", "neoverse", "ibm")


def dissimilarity(there: Mapping[str, Any], here: Mapping[str, Any], device: str = "cpu") -> float:
    """How unlike two machines are by their fingerprints; 0.0 for the same processor, cores and version of torch."""
    if device != "cpu":
        return 0.0 if _accelerator(there, device) == _accelerator(here, device) else 1.0
    cores = abs(math.log(float(there.get("cores") or 1) / float(here.get("cores") or 1)))
    other_torch = 0.1 * (_release(there) != _release(here))
    vendor = _OTHER_VENDOR * (_vendor(there) != _vendor(here))
    return cores + other_torch + vendor + sum(weight * _differs(there, here, field) for field, weight in _CPU.items())


def _differs(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> bool:
    return field in there and field in here and there[field] != here[field]


def _vendor(fingerprint: Mapping[str, Any]) -> str:
    name = str(fingerprint.get("cpu")).lower()
    return next((vendor for vendor in _VENDORS if vendor in name), "")


def _release(fingerprint: Mapping[str, Any]) -> str:
    """Major and minor version of torch."""
    return ".".join(str(fingerprint.get("torch")).split(".")[:2])


def _accelerator(fingerprint: Mapping[str, Any], device: str) -> str | None:
    listed = fingerprint.get("accelerators", ())
    return next((str(facts.get("name")) for facts in listed if facts["device"] == device), None)
