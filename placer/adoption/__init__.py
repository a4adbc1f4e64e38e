"""Watches scripts and notebooks that know nothing of placer, and says what their models would cost on each device.

The names are loaded on first use: a script decides itself when it imports torch, and with which settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Question", "Session", "load_magic", "prepare_module", "prepare_script", "unload_magic"]

if TYPE_CHECKING:
    from placer.adoption.magic import load_magic, unload_magic
    from placer.adoption.running import prepare_module, prepare_script
    from placer.adoption.session import Question, Session

_HOMES = {
    "Question": "session",
    "Session": "session",
    "load_magic": "magic",
    "prepare_module": "running",
    "prepare_script": "running",
    "unload_magic": "magic",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.adoption' has no attribute {name!r}")
    return getattr(importlib.import_module(f"placer.adoption.{_HOMES[name]}"), name)
