"""Counts Python functions, without the finalizers that the collector runs at any time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from placer.collector import without_collection


def functions_entered(run: Callable[[], object]) -> int:
    """How many Python functions are entered while something runs."""
    entered = 0

    def listen(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    gc.collect()
    with without_collection():
        sys.setprofile(listen)
        try:
            run()
        finally:
            sys.setprofile(before)
    return entered
