"""``%load_ext placer`` in IPython: ``%placer`` tells of all cells so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from placer.printable import printable_text
from placer.run.options import ReportOptions
from placer.run.session import Session

#: What is undone by ``unload_magic``, by the id of the shell.
_loaded: dict[int, Callable[[], None]] = {}


def load_magic(shell: Any) -> None:
    """Watch the models that run in ``shell`` (an ``InteractiveShell``), and register the magic ``placer``."""
    if id(shell) in _loaded:
        return
    session = Session(ReportOptions())
    session.watch()

    from IPython.core import magic_arguments

    arguments: Any = magic_arguments
    parser = arguments.MagicArgumentParser("%placer")
    parser.add_argument("--profile", metavar="NAME", type=_unquoted)
    parser.add_argument("--what-if", metavar="GPU", type=_unquoted, action="append", default=[])
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--steps-per-epoch", metavar="N", type=int)
    parser.add_argument("--epochs", metavar="N", type=int)

    def placer(line: str) -> None:
        """What the models of all cells so far cost on each device."""
        report = session.report(ReportOptions(**vars(parser.parse_argstring(line))))
        print(printable_text(report.to_text()), end="")

    def look_again(*info: Any) -> None:
        if session.watcher is not None:
            session.watcher.look()

    shell.register_magic_function(placer, magic_kind="line", magic_name="placer")
    shell.events.register("pre_run_cell", look_again)

    def unload() -> None:
        session.stop()
        shell.events.unregister("pre_run_cell", look_again)
        shell.magics_manager.magics["line"].pop("placer", None)

    _loaded[id(shell)] = unload


def unload_magic(shell: Any) -> None:
    """Undo ``load_magic``."""
    unload = _loaded.pop(id(shell), None)
    if unload is not None:
        unload()


def _unquoted(text: str) -> str:
    return text.strip("\"'")
