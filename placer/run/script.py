"""Runs a script or a module as ``python`` does: as ``__main__``, with its own arguments, exit code and traceback."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

from placer.errors import TargetError


def prepare(name: str, arguments: Sequence[str], *, module: bool = False) -> Callable[[], None]:
    """``python name arguments``, ready to run; ``module``: ``python -m name arguments``.

    Raises TargetError where there is no such script or module.
    """
    return _module(name, arguments) if module else _script(name, arguments)


def _script(path: str, arguments: Sequence[str]) -> Callable[[], None]:
    if not os.path.isfile(path):  # noqa: PTH113 - as it was typed: a traceback shows it
        kind = "a folder, not a script; for a package use -m" if os.path.isdir(path) else "not there"  # noqa: PTH112
        raise TargetError(f"the script {path} is {kind}")
    whole = os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links, as Python does
    _search_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    sys.argv[:] = [path, *arguments]

    def code() -> Any:
        with io.open_code(whole) as file:
            return compile(file.read(), whole, "exec", dont_inherit=True)

    return _as_main(code, whole, SourceFileLoader("__main__", whole), None)


def _module(name: str, arguments: Sequence[str]) -> Callable[[], None]:
    _search_first(os.getcwd())  # noqa: PTH109
    sys.argv[:] = ["-m", *arguments]
    spec = _spec_of(name)
    if spec.submodule_search_locations is not None:
        spec = _spec_of(f"{name}.__main__")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise TargetError(f"{name} has no Python code to run")
    sys.argv[0] = spec.origin or name
    return _as_main(lambda: code, spec.origin, loader, spec)


def _spec_of(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise TargetError(f"no module named {name} can be run: {error}") from error
    if spec is None:
        raise TargetError(f"there is no module named {name}")
    return spec


def _search_first(folder: str) -> None:
    """Put ``folder`` where Python put its own first entry; with ``-P`` it put none."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _as_main(code: Callable[[], Any], path: str | None, loader: Any, spec: ModuleSpec | None) -> Callable[[], None]:
    """What runs the code in a fresh ``__main__``, which stays: what runs at exit may still want it.

    What the code raises is shown without frames of placer; raised on, it ends Python.
    """
    main = ModuleType("__main__")
    main.__dict__.update(
        __builtins__=builtins,
        __file__=path,
        __loader__=loader,
        __spec__=spec,
        __cached__=None,
        __doc__=None,
        __package__=None if spec is None else spec.parent,
    )
    if sys.version_info < (3, 14):
        main.__annotations__ = {}

    def run() -> None:
        sys.modules["__main__"] = main
        try:
            exec(code(), main.__dict__)
        except SystemExit:
            raise
        except BaseException as error:
            trace: TracebackType | None = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            sys.excepthook = lambda *shown: None
            raise

    return run
