"""Shows on stderr what calibration is doing, and the time that is left of all of it."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from placer.printable import printable

#: What is measured, by family of probe, in words for people. ``rates`` are the numbers of the data sheet.
WORDS = {
    "rates": "peak rates",
    "network": "small networks",
    "matmul": "matrix products",
    "elementwise": "elementwise ops",
    "convolution": "convolutions",
    "normalization": "normalization layers",
    "reduction": "sums and means",
    "pooling": "pooling",
    "indexing": "embeddings and indexing",
    "attention": "attention",
    "encoder": "transformer layers",
    "linear_algebra": "linear algebra",
    "recurrent": "recurrent layers",
    "optimizer": "optimizers",
}
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
    """A bar and the time left. Between two updates time passes by ``clock``, but never beyond the stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        state = (
            random.getstate()
        )  # rich draws from it when it is first imported, and the user's network must not notice
        import rich.style  # noqa: F401

        random.setstate(state)
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._clock = clock
        #: Seconds of all stages, of those before this one, of this one, and those that are gone of it since ``_since``.
        self._total = self._before = self._stage = self._spent = 0.0
        self._since = clock()
        owner = self

        class Moving(RichProgress):
            """Asks how far it is whenever it is drawn: several times a second, also while nothing is reported."""

            def get_renderables(self) -> Iterable[RenderableType]:
                for task in self.tasks:
                    self.update(task.id, completed=owner.passed(), left=owner.left())
                return super().get_renderables()

        texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[left]")]
        self._bar = Moving(
            texts[0],
            BarColumn(bar_width=16),
            texts[1],
            TextColumn("{task.fields[what]}", style="dim", markup=False),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=4,
        )
        self._task: Any = None

    def passed(self) -> float:
        """Seconds of all stages that are gone."""
        return self._before + min(self._spent + self._clock() - self._since, self._stage)

    def left(self) -> str:
        """The time left, in words."""
        seconds = max(self._total - self.passed(), 0.0)
        return f"{seconds:.0f} s left" if seconds < _MINUTES else f"{seconds / 60:.0f} min left"

    def showing(self) -> AbstractContextManager[object]:
        return self._bar

    def begin(self, seconds: float) -> None:
        self._total = seconds
        self._task = self._bar.add_task("", total=seconds, what="", left="")

    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        self._next(label, self._before + self._stage, seconds, done)

    def finish(self, label: str, seconds: float) -> None:
        self._next(label, max(self._total - seconds, 0.0), seconds, 0.0)

    def _next(self, label: str, before: float, seconds: float, done: float) -> None:
        self._before, self._stage, self._spent, self._since = before, seconds, done, self._clock()
        self._bar.update(self._task, description=label, what="")

    def update(self, spent: float, what: str) -> None:
        self._spent, self._since = spent, self._clock()
        self._bar.update(self._task, what=WORDS.get(what, what.replace("_", " ")))

    def note(self, text: str) -> None:
        self._bar.console.print(printable(f"placer: {text}"), highlight=False, markup=False)
