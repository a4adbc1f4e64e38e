"""What docstrings and comments name in double backticks exists, so that a reader who looks for it finds it."""

from __future__ import annotations

import ast
import builtins
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
#: A name, a dotted name, or a call of one; options, paths and longer code are left out.
QUOTED = re.compile(r"``([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?``")
WORD = re.compile(r"[A-Za-z_]\w*")
FILE = re.compile(r"\.(csv|gz|journal|json|jsonl|pt2|py|xz)$")
#: Where a name of Python, torch or numpy is looked for.
NAMESPACES = (
    builtins, str, dict, torch, torch.nn, torch.nn.functional, torch.nn.Module, torch.Tensor, torch.optim,
    torch.optim.Optimizer, torch.utils.data, torch.nn.utils.rnn, torch._C, torch._ops, np,
)  # fmt: skip
#: What is found in neither this project nor Python, torch and numpy.
ELSEWHERE = {
    # sources of PyTorch
    "MPSFallback.mm", "MPSStream.mm", "UNIMPLEMENTED_XFAILLIST", "batch_norm_cpu_backward_contiguous_impl",
    "bernoulli_distribution", "binary_kernel_reduce_lastdim", "can_use_expanded_index_path", "cat_serial_kernel",
    "cdist_impl", "compare_base_kernel", "copy_same_type_transpose_", "cpu_atomic_add_float", "depth_to_max_tensors",
    "flex_attention", "foreach_reduced_elt", "is_1stconv", "make_fx", "nnp_convolution_output",
    "parallel_dim_reduction", "promote_inputs_to_common_dtype", "rms_norm_symint", "slow_conv2d_forward_cpu",
    "torch._inductor.graph.GraphLowering.decide_layout_opt", "use_nnpack", "use_persist_common_heuristics",
    "use_rnn_persist_small_h",
    # systems, interpreters and other libraries
    "Actor.options", "InteractiveShell", "Normalize", "PyThreadState", "Task.set_time_estimator", "ToTensor",
    "base_slice_ns", "lspci", "sitecustomize", "study.trials_dataframe",
    # devices, as they are called, and other values of data
    "A770", "AVX512", "Graviton4", "c5", "compute_90", "m5", "ncs_v3", "rtx4090", "rtx_4090", "sm_80", "sm_90a",
    "speech", "t4",
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SOURCES = [path for folder in ("placer", "calibration") for path in sorted((ROOT / folder).rglob("*.py"))]


def documentation(text: str) -> Iterator[str]:
    """The docstrings and the comments of a source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED):
            yield ast.get_docstring(node, clean=False) or ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def words_of_code(text: str) -> set[str]:
    """Every name of a source's code, and the words of its texts, which may be keys."""
    for documented in documentation(text):
        text = text.replace(documented, "")
    return set(WORD.findall(text))


def test_what_is_named_exists() -> None:
    names = {*ELSEWHERE, *sys.stdlib_module_names, *(path.stem for path in SOURCES)}
    names.update(*(dir(namespace) for namespace in NAMESPACES))
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    names.update(*(words_of_code(text) for text in texts.values()))
    missing = set()
    for path, text in texts.items():
        for documented in documentation(text):
            for name in QUOTED.findall(documented):
                known = name in names or FILE.search(name) or all(part in names for part in name.split("."))
                if not known:
                    missing.add(f"{path.relative_to(ROOT)}: {name}")
    assert not missing
