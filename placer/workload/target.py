"""TARGET of the command line -> a model or a job, with the inputs that it comes with.

- ``package.module:attribute`` or ``file.py:attribute``: an ``nn.Module`` or ``Job`` instance, a class or a factory; the
  last two are called, with the literals in brackets behind the name: ``net.py:build(width=256)``. They are read, never
  run. Importing what is named runs its code, as ``python file.py`` would, under another ``__name__``.
- ``hf:NAME``: a model of transformers, built from its configuration (see ``pretrained``).
- ``file.pt2``: a program saved by ``torch.export.save``, with the example it was exported with. torch unpickles such a
  file: it is code like any other target.

Large weights get no random numbers, and no weights are downloaded: a model's price depends on its shapes.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from placer.errors import TargetError, first_line
from placer.nest import map_nest, tensors
from placer.workload import pretrained
from placer.workload.job import Job
from placer.workload.undrawn import Undrawn

SUFFIX = ".pt2"
FORM = "TARGET is package.module:attribute, file.py:attribute, hf:NAME or file.pt2"
#: Images of the batch that is assumed where nobody gave one.
IMAGES = 32
_CALL = re.compile(r"(.+?):([^\W\d][\w.]*)\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Target:
    """What a command line names.

    ``args`` and ``kwargs`` are the inputs that it comes with, both empty where only the user knows them. ``assumed``
    tells that they are a usual batch, and no part of the target. ``draw`` gives the weights the random numbers that
    they have not got. ``notes`` are for the readers of a price.
    """

    model: nn.Module | Job
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    assumed: bool = False
    draw: Callable[[], None] | None = None
    notes: tuple[str, ...] = ()

    def reshaped(self, shapes: Sequence[tuple[tuple[int, ...], torch.dtype | None]]) -> Target:
        """With inputs of other shapes in the order of the tensors there; a dtype None stays as it is.

        Raises ValueError where they are not as many.
        """
        inputs = list(tensors((self.args, self.kwargs)))
        if len(inputs) != len(shapes):
            shown = ", ".join(",".join(map(str, tensor.shape)) or "a scalar" for tensor in inputs)
            raise ValueError(f"--batch is given {len(shapes)} times, and the program takes {len(inputs)}: {shown}")
        others = iter(shapes)

        def other(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            shape, dtype = next(others)
            return torch.empty(shape, dtype=dtype or leaf.dtype, device="meta")

        args, kwargs = map_nest(other, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)


def load_target(target: str, *, train: bool = False) -> Target:
    """The model or job that a text names. ``train`` sets the flag of a saved program, and changes nothing else in it.

    Raises TargetError, with the reason in one line.
    """
    if target.startswith(pretrained.PREFIX):
        with Undrawn() as undrawn:
            model, notes = pretrained.build(target.removeprefix(pretrained.PREFIX))
        return Target(model, draw=undrawn.draw, notes=notes)
    if target.endswith(SUFFIX):
        return _exported(Path(target), train)
    with Undrawn() as undrawn:
        named = find(target, FORM)
        made = named.value
        if isinstance(made, (nn.Module, Job)):
            if named.written:
                raise TargetError(f"{target}: a {type(made).__name__} is there already; name it without brackets")
        else:
            if not callable(made):
                kind = type(made).__name__
                raise TargetError(f"{target} is a {kind}, not an nn.Module, a placer.Job, a class or a factory of one")
            made = named.call()
    if not isinstance(made, (nn.Module, Job)):
        raise TargetError(f"{target} returned a {type(made).__name__}, not an nn.Module or a placer.Job")
    images = _images(named, made)
    return Target(made, images, assumed=bool(images), draw=undrawn.draw)


def _exported(path: Path, train: bool) -> Target:
    """The model in a file, and the inputs it was exported with, if the file has them."""
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
    return Target(model, tuple(args), dict(kwargs))


def _images(named: Named, made: nn.Module | Job) -> tuple[Tensor, ...]:
    """Images of the size that published weights of a network take; nothing where nothing tells it."""
    config = getattr(made, "default_cfg", None)  # of timm
    size = config.get("input_size") if isinstance(config, Mapping) else None
    package = ".".join(named.module.__name__.split(".")[:2])  # torchvision.models has a registry, without a download
    try:
        side = sys.modules[package].get_model_weights(named.value).DEFAULT.transforms.keywords["crop_size"]
    except Exception:  # noqa: BLE001 - no registry, or a builder without weights, or those of no classifier
        side = None
    if isinstance(side, int):
        size = (3, side, side)
    return (torch.empty((IMAGES, *size), device="meta"),) if size else ()


# --- a text -> the Python object that it names ------------------------------------------------------------------------


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

    def call(self) -> Any:
        """What ``value`` returns for the arguments. Raises TargetError, also for whatever it raises."""
        kwargs = self.kwargs
        try:
            signature = inspect.signature(self.value)
        except (TypeError, ValueError):  # a builtin: the call shows whether it needs other arguments
            signature = None
        if signature is not None:
            if "weights_backbone" in signature.parameters:
                kwargs = {"weights_backbone": None, **kwargs}  # torchvision downloads those, if not told otherwise
            try:
                signature.bind(*self.args, **kwargs)
            except TypeError as error:
                raise TargetError(
                    f"{self.text} needs other arguments ({error}); it takes, as literals in brackets behind it: "
                    f"{', '.join(signature.parameters) or 'none'}"
                ) from None
        return _guarded(partial(self.value, *self.args, **kwargs), self.text)


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
            defined = (name for name in vars(module) if _is_defined(module, name))
            offer = ", ".join(sorted(defined)[:8])
            raise TargetError(
                f"{source} has no attribute {attribute!r}" + (f" (it has: {offer})" if offer else "")
            ) from None
    return Named(text, value, module, called is not None, args, kwargs)


def _is_defined(module: ModuleType, name: str) -> bool:
    """Whether a public name of a module is not imported from another one."""
    return not name.startswith("_") and getattr(getattr(module, name), "__module__", None) == module.__name__


def _arguments(text: str, written: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``2, depth=4`` -> ``(2,), {"depth": 4}``."""
    try:
        call = ast.parse(f"_({written})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise TargetError(f"{text!r}: ({written}) are not arguments of one call, like (width=256, depth=4)")
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in kwargs:
            raise TargetError(f"{text!r}: give each argument once, by its name or its place")
        kwargs[keyword.arg] = _literal(text, keyword.value)
    return tuple(_literal(text, node) for node in call.args), kwargs


def _literal(text: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        accepted = "accepted are numbers, strings, True, False, None, and tuples, lists and dicts of them"
        raise TargetError(f"{text!r}: {ast.unparse(node)} is no Python literal; {accepted}") from None


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
    _guarded(partial(spec.loader.exec_module, module), str(path))
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
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    except Exception as error:  # of a package around it, which was imported to look inside
        raise TargetError(f"{name} raised {type(error).__name__}: {first_line(error)}") from error
    if spec is None:
        package = name.partition(".")[0]
        raise TargetError(
            f"there is no module {name!r} on the Python path or in this folder; {form}; "
            f"of a package that is not installed: pip install {package}"
        )
    module: ModuleType = _guarded(partial(importlib.import_module, name), name)
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _guarded(run: Callable[[], Any], source: str) -> Any:
    """Run the user's code. Whatever it raises becomes one line: it is no bug of placer."""
    try:
        return run()
    except SystemExit as error:
        raise TargetError(f"{source} ended the interpreter (exit code {error.code}) while it was imported") from error
    except Exception as error:  # the boundary to code placer knows nothing of
        raise TargetError(f"{source} raised {type(error).__name__}: {first_line(error)}") from error
