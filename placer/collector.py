"""Python's garbage collector, which now and then looks at every object there is: with torch, at 200,000 and more."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """No collection starts in the body, which makes many objects and hardly any garbage: one takes up to 100 ms."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
