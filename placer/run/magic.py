"""``%load_ext placer`` in IPython: ``%placer`` tells of all cells so far, ``%%placer`` of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from placer.printable import printable_text
from placer.run.session import ReportOptions, Session

#: What is undone by ``unload_magic``, by the id of the shell.
_loaded: dict[int, Callable[[], None]] = {}


def _unquoted(text: str) -> str:
    return text.strip("\"'")


def load_magic(shell: Any) -> None:
    """Watch the models that run in ``shell`` (an ``InteractiveShell``), and register the magic ``placer``."""
    if id(shell) in _loaded:
        return
    session = Session(ReportOptions())
    session.watch()

    from IPython.core import magic_arguments

    arguments: Any = magic_arguments

    def placer(line: str, cell: str | None = None) -> None:
        """What the models of all cells so far cost on each device; ``%%placer``: those of this cell."""
        options = ReportOptions(**vars(arguments.parse_argstring(magic, line)))
        watching = session
        if cell is not None:
            watching = Session(options)
            watching.watch()
            try:
                shell.run_cell(cell)
            finally:
                watching.stop()
        print(printable_text(watching.report(options)), end="")

    magic: Any = placer
    for name, settings in (
        ("--profile", {"metavar": "NAME", "type": _unquoted}),
        ("--what-if", {"metavar": "GPU", "type": _unquoted}),
        ("--explain", {"action": "store_true"}),
    ):
        magic = arguments.argument(name, **settings)(magic)
    magic = arguments.magic_arguments()(magic)

    def look_again(*info: Any) -> None:
        if session.watcher is not None:
            session.watcher.look()

    shell.register_magic_function(magic, magic_kind="line_cell", magic_name="placer")
    shell.events.register("pre_run_cell", look_again)

    def unload() -> None:
        session.stop()
        shell.events.unregister("pre_run_cell", look_again)
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("placer", None)

    _loaded[id(shell)] = unload


def unload_magic(shell: Any) -> None:
    """Undo ``load_magic``."""
    unload = _loaded.pop(id(shell), None)
    if unload is not None:
        unload()
