"""Shows what calibration is doing, on stderr: what is being measured and the time left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from placer.explanation.load_rich import load_rich


class Progress:
    """Silent; the base of what shows something."""

    @staticmethod
    def on_terminal() -> Progress:
        """A bar on a terminal; one line per stage where stderr is not one."""
        return _Bar() if sys.stderr.isatty() else _Lines()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def start(self, label: str, seconds: float, *, done: float) -> None:
        """A device begins: ``seconds`` in all, of which an earlier run spent ``done``."""

    def update(self, spent: float, what: str) -> None:
        """``spent`` seconds of the device's share are gone; ``what`` is being measured."""

    def stage(self, text: str) -> None:
        """A stage without a bar begins."""

    def note(self, text: str) -> None:
        """Something to be told."""


def silent() -> Progress:
    """Shows nothing."""
    return Progress()


class _Lines(Progress):
    def start(self, label: str, seconds: float, *, done: float) -> None:
        resumed = f", {done:.0f} s of them done before" if done > 0 else ""
        self.note(f"measuring {label} for {seconds:.0f} s{resumed}")

    def stage(self, text: str) -> None:
        self.note(text)

    def note(self, text: str) -> None:
        print(f"placer: {text}", file=sys.stderr)


class _Bar(Progress):
    def __init__(self) -> None:
        load_rich()
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True), TextColumn("{task.fields[what]}", style="dim"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task: Any = None

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, label: str, seconds: float, *, done: float) -> None:
        if self._task is not None:
            self._bar.update(self._task, visible=False)
        self._task = self._bar.add_task(label, total=seconds, what="")
        self._bar.update(self._task, completed=done)

    def update(self, spent: float, what: str) -> None:
        self._bar.update(self._task, completed=spent, what=what[:48])

    def stage(self, text: str) -> None:
        self._bar.console.print(text, style="dim", highlight=False)

    def note(self, text: str) -> None:
        self._bar.console.print(f"placer: {text}", highlight=False)
