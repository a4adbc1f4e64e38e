"""What docstrings and comments name in double backticks exists, so that a reader who looks for it finds it."""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

ROOT = Path(__file__).parents[1]
#: Names, dotted names and calls. Options, paths, URLs and code of more than that are left out.
_QUOTED = re.compile(r"``([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?``")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FILE = re.compile(r"\.(csv|gz|json|jsonl|pt2|py|xz)$")
_LIBRARIES = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": numpy, "numpy": numpy}
#: Where a bare name of Python, torch or numpy is looked for.
_BARE = (
    builtins, torch, torch.nn, torch.nn.functional, torch.nn.Module, torch.Tensor, torch.optim, torch.optim.Optimizer,
    torch.utils.data, torch.fx.experimental.proxy_tensor, torch._ops, torch.nn.utils.rnn, numpy,
)  # fmt: skip
#: Names in the sources of ATen, drivers, systems and libraries, and what people call their machines.
_FOREIGN = set(
    ["AVX2", "AVX512", "GPUs"]
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def imported_as(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = ("placer", *parts) if parts[0] == "calibration" else parts
    return ".".join(parts).removesuffix(".__init__")


SOURCES = {imported_as(path): path.read_text() for top in ("placer", "calibration") for path in ROOT.glob(f"{top}/**/*.py")}
TREES = {module: ast.parse(source) for module, source in SOURCES.items()}


def prose(source: str) -> Iterator[str]:
    """Docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def names_in(tree: ast.AST) -> set[str]:
    """The names that code uses or defines, and the words of its texts, which may be keys."""
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED) and ast.get_docstring(node)}
    names: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                names.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names.update(_WORD.findall(node.value))
    return names


def defined_in(body: list[ast.stmt]) -> set[str]:
    """The classes, functions and variables of a module or a class."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            names |= defined_in(node.body)
    return names


def imported_by(module: str) -> set[str]:
    """The modules that ``module`` imports something from; of a package, those that it hands on."""
    names: set[str] = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("placer"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names | {name for package in names if package.count(".") for name in TREES if name.startswith(f"{package}.")}


NAMES = {module: names_in(tree) for module, tree in TREES.items()}
DEFINED = {module: defined_in(tree.body) for module, tree in TREES.items()}
FIELDS = {module: set().union(*(defined_in(node.body) for node in tree.body if isinstance(node, ast.ClassDef))) for module, tree in TREES.items()}
CLASSES = {node.name: names_in(node) for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}
IMPORTED = {module: imported_by(module) for module in TREES}
MODULE_PARTS = {part for module in TREES for part in module.split(".")}
ANY_DEFINED = set().union(*DEFINED.values())
ANY_FIELD = set().union(*FIELDS.values())


def exists(name: str, module: str) -> bool:
    """Whether ``name``, as ``module`` says it, is a file, or something of this project, of Python, torch or numpy."""
    head, *rest = name.split(".")
    if not rest:
        return is_name(head, module)
    return bool(_FILE.search(name)) or name in _FOREIGN or is_path(head, rest, module)


def is_name(name: str, module: str) -> bool:
    known = NAMES[module] | MODULE_PARTS | ANY_DEFINED | NAMES["placer.api"] | _FOREIGN | sys.stdlib_module_names
    fields = set().union(*(FIELDS[other] for other in TREES if other in IMPORTED[module]))
    return name in known | fields or any(hasattr(library, name) for library in _BARE)


def is_path(head: str, rest: list[str], module: str) -> bool:
    modules = [name for name in TREES if f".{name}".endswith(f".{head}")]
    if modules:
        return any(in_module(found, rest) for found in modules)
    if head in CLASSES:
        return rest[0] in CLASSES[head]
    if all(part in ANY_FIELD or is_name(part, module) for part in rest) and is_name(head, module):
        return True
    try:
        found = _LIBRARIES.get(head) or importlib.import_module(head)
    except ImportError:
        return False
    return all((found := attribute(found, part)) is not None for part in rest)


def attribute(owner: Any, name: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    try:
        return importlib.import_module(f"{owner.__name__}.{name}")
    except (ImportError, AttributeError):
        return None


def in_module(module: str, rest: list[str]) -> bool:
    """Whether the path ``rest`` leads from a module of the project to something that it defines or hands on."""
    if not rest:
        return True
    if f"{module}.{rest[0]}" in TREES:
        return in_module(f"{module}.{rest[0]}", rest[1:])
    return rest[0] in DEFINED[module] | NAMES[module]


def unresolved(module: str) -> list[str]:
    quoted = {name for text in prose(SOURCES[module]) for name in _QUOTED.findall(text)}
    return sorted(name for name in quoted if not exists(name, module))


if __name__ == "__main__":
    for module in sorted(TREES):
        missing = unresolved(module)
        if missing: print(module, *missing)
