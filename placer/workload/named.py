"""A text of the command line -> the Python object that it names: ``package.module:attribute``, ``file.py:attribute``.

Arguments in brackets behind the name are Python literals: ``net.py:build(width=256)``. They are read, never run.
Importing what is named runs its code, as ``python file.py`` would, under another ``__name__``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch import nn

from placer.errors import TargetError, first_line
from placer.workload.torchvision_ops import load_torchvision

T = TypeVar("T")
_CALL = re.compile(r"(.+?):([^\W\d][\w.]*)\((.*)\)", re.DOTALL)
_LITERALS = "accepted are numbers, strings, True, False, None, and tuples, lists and dicts of them"
#: Packages that pip installs under the name that they are imported by.
_INSTALLED = ("timm", "torchvision", "transformers")


@dataclass(frozen=True)
class Named:
    """The object ``value`` behind ``text``, found in ``module``, with the arguments that are written behind its name.

    ``written`` tells that brackets are there: ``build()`` has them, and no arguments.
    """

    text: str
    value: Any
    module: ModuleType
    written: bool = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def call(self, **more: Any) -> Any:
        """What ``value`` returns for its arguments; ``more`` are further ones. Raises TargetError, also for its own."""
        kwargs = {**self.kwargs, **more}
        try:
            inspect.signature(self.value).bind(*self.args, **kwargs)
        except TypeError as error:
            accepted = ", ".join(self.parameters) or "none"
            raise TargetError(
                f"{self.text} needs other arguments ({error}); it takes, as literals in brackets behind it: {accepted}"
            ) from None
        except ValueError:
            pass  # it has no signature (a builtin): the call shows whether it needs other arguments
        return guarded(lambda: self.value(*self.args, **kwargs), self.text)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters of ``value``; none of a builtin, which has no signature."""
        try:
            return tuple(inspect.signature(self.value).parameters)
        except (TypeError, ValueError):
            return ()


def find(text: str, form: str) -> Named:
    """The object that ``text`` names. ``form`` says in an error what is accepted in its place.

    Raises TargetError, with the reason in one line.
    """
    called = _CALL.fullmatch(text)
    source, attribute = (called[1], called[2]) if called else text.rpartition(":")[::2]
    if not source or not attribute or attribute.endswith(".py"):
        raise TargetError(f"{text!r} names no attribute; {form}")
    if "(" in attribute:
        raise TargetError(f"{text!r} opens a bracket that does not close behind the last argument; {form}")
    args, kwargs = _arguments(text, called[3]) if called else ((), {})
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    module = _import_file(Path(source), form) if is_file else _import_module(source, form)
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise TargetError(f"{source} has no attribute {attribute!r}{_offer(module)}") from None
    return Named(text, value, module, called is not None, args, kwargs)


def _arguments(text: str, written: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``2, depth=4`` -> ``(2,), {"depth": 4}``."""
    try:
        call = ast.parse(f"_({written})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise TargetError(f"{text!r}: ({written}) are not arguments of one call, like (width=256, depth=4)")
    args = tuple(_literal(text, node) for node in call.args)
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in kwargs:
            raise TargetError(f"{text!r}: give each argument once, by its name or its place")
        kwargs[keyword.arg] = _literal(text, keyword.value)
    return args, kwargs


def _literal(text: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise TargetError(f"{text!r}: {ast.unparse(node)} is no Python literal; {_LITERALS}") from None


def _import_file(path: Path, form: str) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}; {form}")
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file; {form}")
    module = importlib.util.module_from_spec(spec)
    _search_first(path.resolve().parent)  # files beside it are importable, as for ``python file.py``
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    loader = spec.loader
    guarded(lambda: loader.exec_module(module), str(path))
    return module


def _module_name(path: Path) -> str:
    """The file's own name, so that other processes find its classes; another one where a module has that."""
    stem = re.sub(r"\W", "_", path.stem)
    try:
        other = importlib.util.find_spec(stem)
        is_free = other is None or (other.has_location and Path(str(other.origin)).resolve() == path.resolve())
    except ValueError:  # a module without a specification, like __main__
        is_free = False
    return stem if is_free else f"placer_target_{stem}_{zlib.crc32(str(path.resolve()).encode())}"


def _import_module(name: str, form: str) -> ModuleType:
    _search_first(Path.cwd())
    package = name.partition(".")[0]
    if package in _INSTALLED:
        guarded(load_torchvision, "torchvision")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    except Exception as error:  # of a package around it, which was imported to look inside
        raise TargetError(f"{name} raised {type(error).__name__}: {first_line(error)}") from error
    if spec is None:
        if package in _INSTALLED and importlib.util.find_spec(package) is None:
            raise TargetError(f"{package} is not installed; run: pip install {package}")
        raise TargetError(f"there is no module {name!r} on the Python path or in this folder; {form}")
    return guarded(lambda: importlib.import_module(name), name)


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def guarded(run: Callable[[], T], source: str) -> T:
    """Run the user's code. Whatever it raises becomes one line: it is no bug of placer."""
    try:
        return run()
    except SystemExit as error:
        raise TargetError(f"{source} ended the interpreter (exit code {error.code}) while it was imported") from error
    except Exception as error:  # the boundary to code placer knows nothing of
        raise TargetError(f"{source} raised {type(error).__name__}: {first_line(error)}") from error


def _offer(module: ModuleType) -> str:
    names = sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (isinstance(value, nn.Module) or callable(value))
    )
    return f" (it has: {', '.join(names[:8])})" if names else ""
