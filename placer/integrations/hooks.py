"""``Placement.step`` for frameworks that call one hook before a step and another one after it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from placer.answer import Placement


class StepHooks:
    """Times what lies between ``begin`` and ``end``; a step that never ends, because it raised, is not recorded."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._step: AbstractContextManager[None] | None = None

    def begin(self) -> None:
        """Before a step."""
        self._step = self.placement.step()
        self._step.__enter__()

    def end(self) -> None:
        """After a step that did not raise."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)
