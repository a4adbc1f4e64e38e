"""``%load_ext placer`` in IPython: ``%placer`` tells of all cells so far, ``%%placer`` of one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from placer.printable import printable_text
from placer.run.session import Question, Session

#: What is undone by ``unload_magic``, by the id of the shell.
_loaded: dict[int, Callable[[], None]] = {}


def load_magic(shell: Any) -> None:
    """Watch the models that run in ``shell`` (an ``InteractiveShell``), and register the magic ``placer``."""
    if id(shell) in _loaded:
        return
    session = Session(Question())
    session.watch()

    def placer(line: str, cell: str | None = None) -> None:
        """``%placer [--explain] [--what-if GPU] [--profile NAME]``; ``%%placer ...``: of the models of this cell."""
        try:
            question = _question(line)
        except ValueError as error:
            print(f"%placer: {error}")
            return
        told = session
        if cell is not None:
            told = Session(question)
            told.watch()
            try:
                shell.run_cell(cell)
            finally:
                told.stop()
        print(printable_text(told.report(question)), end="")

    def look_again(*info: Any) -> None:
        if session.watcher is not None:
            session.watcher.look()

    shell.register_magic_function(placer, magic_kind="line_cell", magic_name="placer")
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


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {self.format_usage().strip()}")


def _question(line: str) -> Question:
    """The options of a magic. Raises ValueError for what is none."""
    options = _Options(prog="%placer", add_help=False)
    options.add_argument("--explain", action="store_true")
    options.add_argument("--what-if", metavar="GPU")
    options.add_argument("--profile", metavar="NAME")
    return Question(**vars(options.parse_args(shlex.split(line))))
