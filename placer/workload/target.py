"""TARGET of the command line -> a model: ``package.module:attribute``, ``file.py:attribute``, or a saved program.

The attribute is an ``nn.Module`` or ``Job`` instance, a class or a factory; the last two are called without arguments.
Importing the target runs its code, as ``python file.py`` would, under another ``__name__``. Large weights get no random
numbers: a model's price depends on its shapes. Programs saved by ``torch.export.save`` (``.pt2``) come with the example
they were exported with; torch unpickles such a file: it is code like any other target.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.errors import TargetError, first_line
from placer.workload.job import Job

#: Smaller tensors are drawn at once: that costs next to nothing.
LEAST_ELEMENTS = 65_536
_DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


class Undrawn(TorchDispatchMode):
    """A context in which large CPU tensors get zeros where they were to get random numbers.

    Drawing is most of the time of building a large model. ``draw`` draws them after all, for a step that has to run;
    what a constructor computed of them in between is that of zeros.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for two seconds, to hide this class from it

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left: dict[int, partial[Tensor]] = {}  # by the address of the memory

    def draw(self) -> None:
        """Fill every tensor that has got zeros."""
        with torch.no_grad():
            while self._left:
                self._left.popitem()[1]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _DRAWS or args[0].numel() < LEAST_ELEMENTS or args[0].device.type != "cpu":
            return func(*args, **(kwargs or {}))
        tensor: Tensor = args[0]
        self._left[tensor.data_ptr()] = partial(func, tensor.detach(), *args[1:], **(kwargs or {}))
        return tensor.zero_()


SUFFIX = ".pt2"


def load_exported(target: str, *, train: bool = False) -> tuple[nn.Module, Any]:
    """The model in a file, and the inputs it was exported with (None where the file has none, or they need keywords).

    Exporting fixes what training changes (dropout, batch norm), so ``train`` only sets the ``training`` flag. Raises
    TargetError, with the reason in one line.
    """
    path = Path(target)
    if not path.is_file():
        raise TargetError(f"there is no file {path}; an exported program is written by torch.export.save")
    try:
        program = torch.export.load(path)
        model = program.module()
    except Exception as error:  # the boundary to a file anybody may have written: whatever is wrong is one line
        raise TargetError(f"{path} is not a program that torch.export.load reads: {first_line(error)}") from error
    for part in model.modules():
        part.training = train  # .train() and .eval() of an exported program raise
    args, kwargs = program.example_inputs or ((), {})
    if args and kwargs:
        return model, None
    return model, tuple(args) or dict(kwargs) or None


_FORM = "TARGET is package.module:attribute or file.py:attribute"


def load_target(target: str) -> tuple[nn.Module | Job, Callable[[], None]]:
    """The model or job a target names, and a function that draws the random numbers that its weights have not got.

    Raises TargetError, with the reason in one line.
    """
    with Undrawn() as undrawn:
        return _loaded(target), undrawn.draw


def _loaded(target: str) -> nn.Module | Job:
    source, _, attribute = target.rpartition(":")
    if not source or not attribute or attribute.endswith(".py"):
        raise TargetError(f"{target!r} names no attribute; {_FORM}")
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    module = _import_file(Path(source)) if is_file else _import_module(source)
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise TargetError(f"{source} has no attribute {attribute!r}{_offer(module)}") from None
    return _as_model(value, target)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}; {_FORM}")
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file; {_FORM}")
    module = importlib.util.module_from_spec(spec)
    _search_first(path.resolve().parent)  # files beside it are importable, as for ``python file.py``
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), str(path))
    return module


def _module_name(path: Path) -> str:
    """The file's own name, so that other processes find its classes; another one where a module has that."""
    stem = re.sub(r"\W", "_", path.stem)
    try:
        found = importlib.util.find_spec(stem)
        is_free = found is None or (found.has_location and Path(str(found.origin)).resolve() == path.resolve())
    except ValueError:  # a module without a specification, like __main__
        is_free = False
    return stem if is_free else f"placer_target_{stem}_{zlib.crc32(str(path.resolve()).encode())}"


def _import_module(name: str) -> ModuleType:
    _search_first(Path.cwd())
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise TargetError(f"there is no module {name!r} on the Python path or in this folder; {_FORM}")
    module: ModuleType = _guarded(lambda: importlib.import_module(name), name)
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _as_model(value: Any, target: str) -> nn.Module | Job:
    if isinstance(value, (nn.Module, Job)):
        return value
    if not callable(value):
        kind = type(value).__name__
        raise TargetError(f"{target} is a {kind}, not an nn.Module, a placer.Job, a class or a factory of one")
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        raise TargetError(f"{target} needs arguments ({error}); name a factory that takes none") from None
    except ValueError:
        pass  # it has no signature (a builtin): the call shows whether it needs arguments
    made: Any = _guarded(value, target)
    if not isinstance(made, (nn.Module, Job)):
        raise TargetError(f"{target} returned a {type(made).__name__}, not an nn.Module or a placer.Job")
    return made


def _guarded(run: Any, what: str) -> Any:
    """Run the user's code. Whatever it raises becomes one line: it is no bug of placer."""
    try:
        return run()
    except SystemExit as error:
        raise TargetError(f"{what} ended the interpreter (exit code {error.code}) while it was imported") from error
    except Exception as error:  # the boundary to code placer knows nothing of
        raise TargetError(f"{what} raised {type(error).__name__}: {first_line(error)}") from error


def _offer(module: ModuleType) -> str:
    names = sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (isinstance(value, nn.Module) or callable(value))
    )
    return f" (it has: {', '.join(names[:8])})" if names else ""
