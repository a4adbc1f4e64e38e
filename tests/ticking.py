"""A clock for tests of time limits."""

from __future__ import annotations


class Clock:
    """A second passes with every look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
