"""What docstrings and comments name in double backticks exists, so that a reader who looks for it finds it."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
#: A name, a dotted name, or a call of one; options, paths and longer code are left out.
QUOTED = re.compile(r"``([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?``")
WORD = re.compile(r"[A-Za-z_]\w*")
FILE = re.compile(r"\.(csv|gz|journal|json|jsonl|pt2|py|xz)$")
LIBRARIES = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np}
#: Where a bare name of Python, torch or numpy is looked for.
NAMESPACES = (
    builtins, torch, torch.nn, torch.nn.functional, torch.nn.Module, torch.Tensor, torch.optim, torch.optim.Optimizer,
    torch.utils.data, torch.nn.utils.rnn, torch._C, torch._ops, np,
)  # fmt: skip
#: What is found in neither this project nor Python, torch and numpy.
ELSEWHERE = {
    # sources of PyTorch
    "batch_norm_cpu_backward_contiguous_impl", "binary_kernel_reduce_lastdim", "can_use_expanded_index_path",
    "cascade_sum", "cat_serial_kernel", "DEFAULT_MMAP_THRESHOLD_MAX", "nnp_convolution_output",
    "slow_conv2d_forward_cpu", "use_nnpack",
    "bernoulli_distribution", "cdist_impl", "compare_base_kernel", "copy_same_type_transpose_", "cpu_atomic_add_float",
    "cpu_scatter_gather_base_kernel", "depth_to_max_tensors", "flex_attention", "foreach_reduced_elt", "is_1stconv",
    "make_fx", "parallel_dim_reduction", "promote_inputs_to_common_dtype", "rms_norm_symint",
    "use_persist_common_heuristics", "use_rnn_persist_small_h", "MPSFallback.mm", "MPSStream.mm",
    "UNIMPLEMENTED_XFAILLIST",
    # systems, drivers and interpreters
    "base_slice_ns", "compute_90", "cudaLaunchKernel", "lspci", "PyThreadState", "python", "sitecustomize", "sm_80",
    "sm_90a", "user", "f",
    # other libraries
    "Actor.options", "InteractiveShell", "Normalize", "ToTensor", "Task.set_time_estimator", "Trainer.train",
    "drop_last", "joblib.cpu_count", "sky.Resources", "study.trials_dataframe",
    # values and keys of data
    "AVX2", "AVX512", "calibrated", "compute", "context", "first_calls", "fused", "highest", "language", "libraries",
    "medium", "quick", "recommender", "rows", "speech", "transposed", "w", "y",
    # devices, as they are called
    "A100", "A770", "Graviton4", "M5", "Pro", "T4", "c5", "m5", "ncs_v3", "rtx4090", "rtx_4090", "t4",
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def imported_as(path: Path) -> str:
    """The name of a source file's module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = ("placer", *parts) if parts[0] == "calibration" else parts
    return ".".join(parts).removesuffix(".__init__")


def names_in(tree: ast.AST, *, variables: bool = True) -> set[str]:
    """What code of ``tree`` uses or defines, and the words of its texts, which may be keys."""
    documented = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED) and ast.get_docstring(node)]
    docstrings = {id(node.body[0].value) for node in documented}  # type: ignore[attr-defined]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not variables:
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                names.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names.update(WORD.findall(node.value))
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


class Source:
    """A module: what it says, and what it has."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef)]
        self.classes = {node.name: names_in(node) for node in classes}
        self.fields = {name for node in classes for name in defined_in(node.body)}
        self.defined = defined_in(self.tree.body)
        self.names = names_in(self.tree)
        self.lasting = names_in(self.tree, variables=False) | self.defined

    def imported(self) -> set[str]:
        """The modules of this project that it imports something from; with a package, all that are in it."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("placer."):
                packages = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                found |= {name for name in SOURCES for package in packages if f"{name}.".startswith(f"{package}.")}
        return found

    def quoted(self) -> Iterator[tuple[str, bool]]:
        """Names in double backticks, and whether a variable of a function may be meant: not above all functions."""
        for node in ast.walk(self.tree):
            text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            yield from ((name, not isinstance(node, ast.Module)) for name in QUOTED.findall(text or ""))
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield from ((name, True) for name in QUOTED.findall(token.string))


SOURCES = {imported_as(path): Source(path) for top in ("placer", "calibration") for path in ROOT.glob(f"{top}/**/*.py")}
CLASSES = {name: names for source in SOURCES.values() for name, names in source.classes.items()}
FIELDS = {name for source in SOURCES.values() for name in source.fields}
#: Names that mean the same in any module.
EVERYWHERE = {
    *ELSEWHERE,
    *sys.stdlib_module_names,
    *(part for module in SOURCES for part in module.split(".")),
    *(name for source in SOURCES.values() for name in source.defined),
    *SOURCES["placer.api"].names,
}


def unresolved(source: Source) -> list[str]:
    """The quoted names of a module that nothing is called."""
    near = {field for module in source.imported() for field in SOURCES[module].fields}
    missing = []
    for name, variables in source.quoted():
        known = EVERYWHERE | near | (source.names if variables else source.lasting)
        if name not in known and not FILE.search(name) and not resolves(name, known, source.names):
            missing.append(name)
    return missing


def resolves(name: str, known: set[str], variables: set[str]) -> bool:
    """Whether a name is something. ``variables``: what may be a value, of which the rest is an attribute."""
    head, *rest = name.split(".")
    if not rest:
        return is_known(head, known)
    if any(leads_somewhere(module, rest) for module in SOURCES if f".{module}".endswith(f".{head}")):
        return True
    if head in CLASSES:
        return rest[0] in CLASSES[head]
    if head in variables and all(part in FIELDS or is_known(part, known) for part in rest):
        return True
    return is_of_a_library(head, rest)


def is_known(name: str, known: set[str]) -> bool:
    return name in known or any(hasattr(namespace, name) for namespace in NAMESPACES)


def leads_somewhere(module: str, rest: list[str]) -> bool:
    """Whether ``rest`` leads from a module of the project to what it defines or hands on."""
    if rest and f"{module}.{rest[0]}" in SOURCES:
        return leads_somewhere(f"{module}.{rest[0]}", rest[1:])
    return not rest or rest[0] in SOURCES[module].names


def is_of_a_library(head: str, rest: list[str]) -> bool:
    if head not in LIBRARIES and head not in sys.stdlib_module_names:
        return False
    found: Any = LIBRARIES.get(head) or importlib.import_module(head)
    for part in rest:
        if not hasattr(found, part):
            with contextlib.suppress(ImportError, AttributeError):
                importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part, None)
    return found is not None


def test_what_is_named_exists() -> None:
    missing = {module: found for module, source in SOURCES.items() if (found := unresolved(source))}
    assert not missing


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("placer.pricing", True),
        ("placer.pricing.nowhere", False),
        ("tracer.trace", True),
        ("tracer.nothing", False),
        ("Trace.calls", True),
        ("Trace.nothing", False),
        ("torch.nn.Linear", True),
        ("torch.nothing", False),
        ("no_such_name", False),
        ("requires_grad", True),
        ("model.training", True),
        ("model.no_such_name", False),
    ],
)
def test_names_are_told_from_what_is_gone(name: str, exists: bool) -> None:
    assert resolves(name, EVERYWHERE, {"model"}) is exists
