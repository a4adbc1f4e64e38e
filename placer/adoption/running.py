"""Runs a script or a module as ``python`` does: as ``__main__``, with its own arguments, exit code and traceback."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from placer.errors import TargetError


def prepare_script(path: str, arguments: Sequence[str]) -> Callable[[], None]:
    """``python path arguments``, ready to run. Raises TargetError where there is no such file."""
    if not os.path.isfile(path):  # noqa: PTH113 - as it was typed: a traceback shows it
        kind = "a folder, not a script; for a package use -m" if os.path.isdir(path) else "not there"  # noqa: PTH112
        raise TargetError(f"the script {path} is {kind}")
    whole = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links, as Python does
    main = _new_main(whole, SourceFileLoader("__main__", whole), None)
    _search_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    sys.argv[:] = [path, *arguments]
    return partial(_run, main, partial(_compiled, whole))


def prepare_module(name: str, arguments: Sequence[str]) -> Callable[[], None]:
    """``python -m name arguments``, ready to run. Raises TargetError where there is no such module."""
    _search_first(os.getcwd())  # noqa: PTH109
    sys.argv[:] = ["-m", *arguments]
    spec = _found(name)
    if spec.submodule_search_locations is not None:
        spec = _found(f"{name}.__main__")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise TargetError(f"{name} has no Python code to run")
    main = _new_main(spec.origin, loader, spec)
    sys.argv[0] = spec.origin or name
    return partial(_run, main, lambda: code)


def _found(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise TargetError(f"no module named {name} can be run: {error}") from error
    if spec is None:
        raise TargetError(f"there is no module named {name}")
    return spec


def _new_main(path: str | None, loader: Any, spec: ModuleSpec | None) -> ModuleType:
    """A fresh ``__main__``. It stays: what the script has registered may still want it when Python ends."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __builtins__=builtins, __file__=path, __loader__=loader, __spec__=spec, __cached__=None, __doc__=None,
        __package__=None if spec is None else spec.parent,
    )  # fmt: skip
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _search_first(folder: str) -> None:
    """Put ``folder`` where Python put its own first entry; with ``-P`` it put none."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _compiled(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _run(main: ModuleType, code: Callable[[], CodeType]) -> None:
    """Run the code as ``main``. What it raises is shown here, without frames of placer; raised on, it ends Python."""
    try:
        exec(code(), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        own = _own(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(own), own)
        sys.excepthook = _shown_already
        raise


def _own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module; None for a script that did not compile."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _shown_already(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of ``sys.excepthook``: the exception was shown."""
