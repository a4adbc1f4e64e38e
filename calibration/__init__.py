"""Measures a machine, once: what its ops cost becomes a profile that prices any workload.

The names below are for the command line and ``placer.calibrate``. They are loaded on first use, since fitting brings
scikit-learn.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["calibrate", "render_summary", "research", "validate_suite"]

if TYPE_CHECKING:
    from placer.calibration.runner import calibrate
    from placer.calibration.summary import render as render_summary
    from placer.calibration.validation.run import main as validate_suite

#: Module and name behind each name of this page.
_HOMES = {
    "calibrate": ("runner", "calibrate"),
    "render_summary": ("summary", "render"),
    "validate_suite": ("validation.run", "main"),
}


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.calibration' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(f"placer.calibration.{module}"), attribute)


def research() -> ModuleType | None:
    """What measures placer itself; None in a wheel, which does not have it."""
    if importlib.util.find_spec("placer.calibration.lab") is None:
        return None
    return importlib.import_module("placer.calibration.lab")
