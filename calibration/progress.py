"""Shows on stderr what calibration is doing, and the time that is left of all of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from placer.explanation import load_rich
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
#: Seconds from which on the time left is told in minutes.
_MINUTES = 120.0


class Progress:
    """Silent; the base of what shows something. Stages follow each other; all times are in seconds."""

    @staticmethod
    def on_terminal() -> Progress:
        """A bar on a terminal; one line per stage where stderr is not one."""
        return _Bar() if sys.stderr.isatty() else _Lines()

    def showing(self) -> AbstractContextManager[object]:
        """What is told in the body is shown."""
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
        """Something to be told."""


def silent() -> Progress:
    """Shows nothing."""
    return Progress()


class Course:
    """How far a calibration is: between two updates time passes by the clock, but never beyond the stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0.0
        self._clock = clock
        self._before = self._stage = self._spent = 0.0
        self._since = clock()

    def start(self, seconds: float, done: float = 0.0) -> None:
        """A stage of ``seconds`` begins after those before it."""
        self._before += self._stage
        self._stage = seconds
        self.reached(done)

    def finish(self, seconds: float) -> None:
        """The last ``seconds`` begin."""
        self._before, self._stage = max(self.total - seconds, 0.0), seconds
        self.reached(0.0)

    def reached(self, spent: float) -> None:
        """``spent`` seconds of the stage are gone."""
        self._spent, self._since = spent, self._clock()

    def passed(self) -> float:
        return self._before + min(self._spent + self._clock() - self._since, self._stage)

    def left(self) -> str:
        seconds = max(self.total - self.passed(), 0.0)
        return f"{seconds:.0f} s left" if seconds < _MINUTES else f"{seconds / 60:.0f} min left"


class _Lines(Progress):
    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        resumed = f", {done:.0f} s of them done before" if done > 0 else ""
        self.note(f"{label}: {seconds:.0f} s{resumed}")

    def finish(self, label: str, seconds: float) -> None:
        self.start(label, seconds)

    def note(self, text: str) -> None:
        print(printable(f"placer: {text}"), file=sys.stderr)


class _Bar(Progress):
    def __init__(self) -> None:
        load_rich()
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        course = self._course = Course()

        class Moving(RichProgress):
            """Asks how far it is whenever it is drawn: several times a second, also while nothing is told."""

            def get_renderables(self) -> Iterable[RenderableType]:
                for task in self.tasks:
                    self.update(task.id, completed=course.passed(), left=course.left())
                return super().get_renderables()

        texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[left]")]
        self._bar = Moving(
            texts[0], BarColumn(bar_width=16), texts[1], TextColumn("{task.fields[what]}", style="dim", markup=False),
            console=Console(stderr=True), transient=True, refresh_per_second=4,
        )  # fmt: skip
        self._task: Any = None

    def showing(self) -> AbstractContextManager[object]:
        return self._bar

    def begin(self, seconds: float) -> None:
        self._course.total = seconds
        self._task = self._bar.add_task("", total=seconds, what="", left="")

    def start(self, label: str, seconds: float, *, done: float = 0.0) -> None:
        self._course.start(seconds, done)
        self._bar.update(self._task, description=label, what="")

    def update(self, spent: float, what: str) -> None:
        self._course.reached(spent)
        self._bar.update(self._task, what=WORDS.get(what, what.replace("_", " ")))

    def finish(self, label: str, seconds: float) -> None:
        self._course.finish(seconds)
        self._bar.update(self._task, description=label, what="")

    def note(self, text: str) -> None:
        self._bar.console.print(printable(f"placer: {text}"), highlight=False, markup=False)
