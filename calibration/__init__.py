"""Measures a machine, once: what its ops cost becomes a profile that prices any workload.

The names below are for the command line and ``placer.calibrate``. They are loaded on first use, since fitting brings
scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "calibrate",
    "check_what_if",
    "render_summary",
    "validate_accounts",
    "validate_compiled",
    "validate_jobs",
    "validate_machines",
    "validate_problems",
    "validate_published",
    "validate_suite",
]

if TYPE_CHECKING:
    from placer.calibration.runner import calibrate
    from placer.calibration.summary import render as render_summary
    from placer.calibration.validation.accounts import validate_accounts
    from placer.calibration.validation.compiled_speed_ups import validate_compiled
    from placer.calibration.validation.jobs import validate_jobs
    from placer.calibration.validation.published_machines import validate_machines
    from placer.calibration.validation.published_problems import validate_problems
    from placer.calibration.validation.published_steps import validate_published
    from placer.calibration.validation.run import check_what_if
    from placer.calibration.validation.run import main as validate_suite

#: Module and name behind each name of this page.
_HOMES = {
    "calibrate": ("runner", "calibrate"),
    "check_what_if": ("validation.run", "check_what_if"),
    "render_summary": ("summary", "render"),
    "validate_accounts": ("validation.accounts", "validate_accounts"),
    "validate_compiled": ("validation.compiled_speed_ups", "validate_compiled"),
    "validate_jobs": ("validation.jobs", "validate_jobs"),
    "validate_machines": ("validation.published_machines", "validate_machines"),
    "validate_problems": ("validation.published_problems", "validate_problems"),
    "validate_published": ("validation.published_steps", "validate_published"),
    "validate_suite": ("validation.run", "main"),
}


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.calibration' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(f"placer.calibration.{module}"), attribute)
