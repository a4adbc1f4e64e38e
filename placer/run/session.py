"""One watched process: looks while the script runs, tells when it has ended, and never stands in its way."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from placer.errors import first_line
from placer.printable import printable_text

if TYPE_CHECKING:
    from placer.run.watcher import Watcher

#: Columns of a report that does not go to a terminal.
PIPED_WIDTH = 100


@dataclass(frozen=True)
class ReportOptions:
    """What the report answers: priced by which profile (None: this machine's), beside which other GPU, how fully."""

    profile: Any = None
    what_if: str | None = None
    explain: bool = False


class Session:
    """Watches from when torch is there. ``begin`` also tells at the end of the process."""

    def __init__(self, options: ReportOptions) -> None:
        self.options = options
        self.watcher: Watcher | None = None
        self.failure: str | None = None
        self._process = os.getpid()

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

    def report(self, options: ReportOptions | None = None, *, width: int = PIPED_WIDTH) -> str:
        """What was seen so far, priced. Raises nothing but what ends a process."""
        options = options or self.options
        if self.failure is not None:
            return f"placer: nothing was watched: {self.failure}\n"
        if self.watcher is None:
            return "placer: torch was not imported: there is nothing to compare\n"
        models = self.watcher.models
        ended = f"placer: watching ended early: {self.watcher.failure}\n" if self.watcher.failure else ""
        if self.watcher.more:
            ended += f"placer: only the first {len(models)} architectures were looked at\n"
        if not models:
            return f"{ended}placer: no model ran: a model is an nn.Module with parameters that is called with tensors\n"
        from placer.run.report import report

        return ended + report(models, width, options.profile, options.what_if, options.explain)

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
                terminal = sys.stderr.isatty()
                width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if terminal else PIPED_WIDTH
                text = f"\n{self.report(width=width)}"
            except KeyboardInterrupt:
                text = "placer: interrupted\n"
            except Exception as error:  # noqa: BLE001 - the script's exit code is not placer's to change
                text = f"placer: no report: {type(error).__name__}: {first_line(error)}\n"
            sys.stderr.write(printable_text(text))
            sys.stderr.flush()
