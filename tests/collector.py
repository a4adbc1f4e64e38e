"""Tests that count Python functions: the collector runs finalizers of whatever was there before, at any time."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def functions_entered(run: Callable[[], object]) -> int:
    """How many Python functions are entered while something runs."""
    entered = 0

    def listen(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    with no_collection():
        sys.setprofile(listen)
        try:
            run()
        finally:
            sys.setprofile(before)
    return entered
