"""Loading rich without drawing from the user's random numbers, as its first import does."""

from __future__ import annotations

import random


def load_rich() -> None:
    """Call before the first import of rich: a network that is initialised after a report is printed stays the same."""
    state = random.getstate()
    try:
        import rich.style  # noqa: F401
    finally:
        random.setstate(state)
