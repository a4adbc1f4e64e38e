"""Random numbers that a step draws outside of torch: another draw may run other ops."""

from __future__ import annotations

import random
import sys
from typing import Any

_NOTE = "the step draws random numbers of {0}: this is what one draw runs, another may run more or less"


class PythonDraws:
    """Tells whether Python's or numpy's global generator has been drawn from since this was made."""

    def __init__(self) -> None:
        self._before = _states()

    def notes(self) -> tuple[str, ...]:
        """A sentence for each that was."""
        now = _states()
        return tuple(_NOTE.format(name) for name, state in self._before.items() if now[name] != state)


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"Python": random.getstate(), "numpy": None}
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, keys, *rest = numpy_random.get_state()
        states["numpy"] = (kind, keys.tobytes(), *rest)
    return states
