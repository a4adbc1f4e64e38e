"""One watched process: looks while the script runs, tells when it has ended, and never stands in its way."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from placer.errors import PlacerError, first_line
from placer.files import write_new
from placer.printable import printable_text
from placer.run.options import SCHEMA, ReportOptions

if TYPE_CHECKING:
    from placer.run.report import Report
    from placer.run.watcher import Watcher

#: Columns of a report that does not go to a terminal.
PIPED_WIDTH = 100


@dataclass(frozen=True)
class NothingWatched:
    """A report without models, made without torch: ``why`` there are none."""

    why: str
    slower: None = None

    def to_text(self, width: int = PIPED_WIDTH) -> str:
        """One line."""
        return f"placer: {self.why}\n"

    def to_json(self) -> str:
        """As that of a report with models."""
        values = {"schema": SCHEMA, "models": [], "run": None, "slower": None, "remarks": [self.why]}
        return json.dumps(values, indent=2) + "\n"


class Session:
    """Watches from when torch is there. ``begin`` also tells at the end of the process.

    It tells as ``form`` (text or json) on stderr, on stdout (``output`` is "-"), or in the file ``output``.
    """

    def __init__(self, options: ReportOptions, *, form: str = "text", output: str | None = None) -> None:
        self.options = options
        self.form, self.stdout = form, output == "-"
        self.output = None if output is None or self.stdout else Path(output).absolute()
        self.watcher: Watcher | None = None
        self.failure: str | None = None
        self._process = os.getpid()
        self._reported: Report | NothingWatched | None = None
        self._judgement = ""

    def begin(self) -> None:
        """Watch, and tell on stderr after everything that the script itself does when it ends."""
        atexit.register(self._at_exit)
        self.watch()

    def watch(self) -> None:
        """Watch from now on, or from when torch is imported."""
        if "torch" in sys.modules:
            self._start()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find torch as all others do, and start once it is loaded: the protocol of ``sys.meta_path``."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return None
        original = loader.exec_module

        def load(module: ModuleType) -> None:
            del loader.exec_module  # the loader is again what it was
            original(module)
            self._start()

        loader.exec_module = load
        return spec

    def stop(self) -> None:
        """Leave torch as it was; what was seen stays."""
        if self.watcher is not None:
            self.watcher.stop()

    def report(self, options: ReportOptions | None = None) -> Report | NothingWatched:
        """What was seen so far, priced. Raises nothing but what ends a process."""
        if self.failure is not None:
            return NothingWatched(f"nothing was watched: {self.failure}")
        if self.watcher is None:
            return NothingWatched("torch was not imported: there is nothing to compare")
        from placer.run.report import reported

        return reported(self.watcher, options or self.options)

    def judge(self, limit: float) -> int:
        """The exit code of a script that has ended well, with the report that is told at its end.

        3 where it takes more than ``limit`` times as long as on the best device that was asked about, 1 where nobody
        can tell, else 0.
        """
        self.stop()
        self._reported = self.report()
        slower = self._reported.slower
        if slower is None:
            self._judgement = "--fail-if-slower-than cannot be judged: no model was predicted on the device it ran on"
            return 1
        if slower <= limit:
            return 0
        self._judgement = (
            f"slower than allowed: {slower:.2f} times as long as on the best device, and {limit:g} are allowed"
        )
        return 3

    def _start(self) -> None:
        """torch has just been imported by the script."""
        try:
            from placer.run.watcher import Watcher

            self.watcher = Watcher()
            self.watcher.start()
        except Exception as error:  # noqa: BLE001 - the script goes on without placer
            self.failure = f"{type(error).__name__}: {first_line(error)}"

    def _at_exit(self) -> None:
        if os.getpid() != self._process:  # a child that was forked has its parent's end to tell
            return
        with contextlib.suppress(OSError, ValueError):  # nobody reads, or stderr is closed
            sys.stdout.flush()
            try:
                self.stop()
                told, written = self._told()
            except KeyboardInterrupt:
                told, written = "", "placer: interrupted\n"
            except Exception as error:  # noqa: BLE001 - the script's exit code is not placer's to change
                kind = "" if isinstance(error, PlacerError) else f"{type(error).__name__}: "
                told, written = "", f"placer: no report: {kind}{first_line(error)}\n"
            for stream, text in ((sys.stdout if self.stdout else sys.stderr, told), (sys.stderr, written)):
                stream.write(printable_text(text))
                stream.flush()

    def _told(self) -> tuple[str, str]:
        """The report, unless it goes to a file; and lines on stderr: where it was written, and a judgement."""
        report = self._reported or self.report()
        written = f"placer: {self._judgement}\n" if self._judgement else ""
        if self.form == "json":
            text = report.to_json()
        else:
            terminal = sys.stderr.isatty() and self.output is None and not self.stdout
            text = report.to_text(shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if terminal else PIPED_WIDTH)
        if self.output is None:
            return (text if self.stdout else f"\n{text}"), written
        write_new(self.output, printable_text(text).encode())
        return "", f"placer: written to {self.output}\n{written}"
