"""Shows on stderr what calibration is doing, and the time that is left of all of it."""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from placer.printable import printable

#: Seconds from which on the time left is shown in minutes.
_MINUTES = 120.0


class Progress:
    """Silent; the base of what shows something. Stages follow each other; all times are in seconds."""

    @staticmethod
    def on_terminal() -> Progress:
        """A bar on a terminal; one line per stage where stderr is not one."""
        return _Bar() if sys.stderr.isatty() else _Lines()

    def showing(self) -> AbstractContextManager[object]:
        """What is reported in the body is shown."""
        return nullcontext()

    def begin(self, seconds: float) -> None:
        """The calibration begins. It takes ``seconds``, all stages together."""

    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        """A stage of ``seconds`` begins, of which an earlier run spent ``done``."""

    def update(self, spent: float, what: str) -> None:
        """``spent`` seconds of the stage are gone. ``what``, a family of probes or ``rates``, is measured now."""

    def finish(self, label: str, seconds: float) -> None:
        """The last stage begins, also where others were left out."""

    def note(self, text: str) -> None:
        """Something to report."""


class _Lines(Progress):
    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        resumed = f", {done:.0f} s of them done before" if done > 0 else ""
        self.note(f"{label}: {seconds:.0f} s{resumed}")

    def finish(self, label: str, seconds: float) -> None:
        self.start(label, seconds)

    def note(self, text: str) -> None:
        print(printable(f"placer: {text}"), file=sys.stderr)


class _Bar(Progress):
    """A bar and the time left, as far as was reported: a probe takes less than a second."""

    def __init__(self) -> None:
        state = random.getstate()  # rich draws from it when it is first imported, which the user must not notice
        import rich.style  # noqa: F401

        random.setstate(state)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        #: Seconds of all stages, of those before this one, and of this one.
        self._total = self._before = self._stage = 0.0
        texts = [
            TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[left]", "fields[what]")
        ]
        self._bar = RichProgress(
            texts[0],
            BarColumn(bar_width=16),
            *texts[1:],
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=4,  # drawing takes time from what is measured
        )
        self._task: Any = None

    def showing(self) -> AbstractContextManager[object]:
        return self._bar

    def begin(self, seconds: float) -> None:
        self._total = seconds
        self._task = self._bar.add_task("", total=seconds, what="", left="")

    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        self._before += self._stage
        self._stage = seconds
        self._bar.update(self._task, description=label)
        self.update(done, "")

    def finish(self, label: str, seconds: float) -> None:
        self._before, self._stage = max(self._total - seconds, 0.0), 0.0
        self.start(label, seconds)

    def update(self, spent: float, what: str) -> None:
        passed = self._before + min(spent, self._stage)
        left = max(self._total - passed, 0.0)
        words = f"{left:.0f} s left" if left < _MINUTES else f"{left / 60:.0f} min left"
        self._bar.update(self._task, completed=passed, what=what.replace("_", " "), left=words)

    def note(self, text: str) -> None:
        self._bar.console.print(printable(f"placer: {text}"), highlight=False, markup=False)
