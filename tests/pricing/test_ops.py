"""The table of ops: well formed, complete by torch's own lists, and nothing is below its physical bound."""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from described import spec, work
from priced import device
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Apply
from placer.pricing import FAMILIES, Context, CostModel, describe, describe_step, device_model
from placer.pricing.effort import Amounts
from placer.pricing.ops import (
    ANY_UPDATE,
    FUNCTIONS,
    LISTS,
    NO_ROW,
    OPS_FILE,
    UPDATE_PREFIX,
    Op,
    evaluate,
    row_of,
    table,
)
from placer.pricing.prediction import SIGMA
from placer.pricing.shapes.loops import Loop
from placer.profile import find_gpu
from placer.tracing import OpCall, Trace, trace_here
from placer.workload import make_workload

# --- its cells ----------------------------------------------------------------------------------------------------

PRICING = OPS_FILE.parent
with OPS_FILE.open(encoding="utf-8", newline="") as lines:
    HEAD, *CELLS = csv.reader(lines)
ROWS = {cells[0]: dict(zip(HEAD, cells, strict=False)) for cells in CELLS}
with (PRICING / "traits.csv").open(encoding="utf-8", newline="") as lines:
    TRAITS = {row["trait"]: row["meaning"] for row in csv.DictReader(lines)}

#: What an Apple GPU does otherwise: ops that it lacks, and those with a rate or a way to be issued of their own.
MPS = {"lacking", "cpu", "cat", "arg", "stages", "scatter", "graph"}


def test_columns_are_the_fields_of_a_row_and_every_op_stands_once() -> None:
    assert [field.name for field in fields(Op)] == HEAD
    assert [cells for cells in CELLS if len(cells) != len(HEAD)] == []
    assert [name for name, count in Counter(cells[0] for cells in CELLS).items() if count > 1 or not name] == []


def test_words_are_those_that_pricing_knows() -> None:
    """And each of them is asked for: a word that nobody reads says nothing."""
    assert {row["family"] for row in ROWS.values()} - {""} <= set(FAMILIES)
    assert {row["shared"] for row in ROWS.values()} == {"", "no"}
    assert {word for row in ROWS.values() for word in row["mps"].split()} == MPS
    assert {trait.partition("=")[0] for row in ROWS.values() for trait in row["traits"].split()} == set(TRAITS)
    code = "".join(path.read_text(encoding="utf-8") for path in PRICING.rglob("*.py"))
    assert [word for word in {*TRAITS, *MPS} if f'"{word}"' not in code and f'"{word}=' not in code] == []
    assert all(TRAITS.values())


def test_the_page_on_new_ops_says_what_every_column_is_and_names_rows_to_copy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "dev" / "new-op.md").read_text(encoding="utf-8")
    assert [column for column in HEAD if f"`{column}`" not in page] == []
    _, *rest = page.partition("| your op | copy |")
    copied = re.findall(r"`(\w+)`", "".join(rest).partition("\n\n")[0])
    assert len(copied) > 5
    assert [name for name in copied if name not in ROWS] == []


# --- its formulas -------------------------------------------------------------------------------------------------


#: What is no formula, of any op or of a loop.
WRONG = (
    "__import__('os')",
    "numel.real",
    "[numel]",
    "no_such_amount",
    "2*no_such_amount",
    "max",
    "size(0, key=1)",
    "products",
    "lambda: 1",
    "'a'",
)


@pytest.mark.parametrize("formula", [*WRONG, "numel numel", "size(0)"])
def test_a_formula_that_does_not_fit_its_op_is_refused(formula: str) -> None:
    """And so is what would run other code."""
    operands = OpCall("aten::relu", (spec(4, 4),), (spec(4, 4),))
    row = row_of("aten::relu")
    amounts = Amounts(operands, row, Loop.read(operands, row), 16.0)
    with pytest.raises(ValueError, match=r"formula|float"):
        evaluate(formula, amounts, 1.0)
    assert evaluate("", amounts, 1.0) == 1.0
    assert evaluate("numel+2*size(0,-1)", amounts, 1.0) == 24.0


#: What formulas are made of; and the operators that they may have.
PARTS = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call, ast.Load)
OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    ast.Eq, ast.NotEq,
)  # fmt: skip


def test_every_formula_of_every_row_is_one_and_names_what_a_call_has() -> None:
    """A wrong one would be swallowed where a call is priced: the op would be taken for one without a row."""
    amounts = {"flops", *(name for name in vars(Amounts) if not name.startswith("_"))}
    wrong = []
    for row in table():
        families = [FAMILIES[row.family]] if row.family else FAMILIES.values()
        shapes = {field.name for family in families for field in fields(family.shape)}
        names = amounts | shapes | set(FUNCTIONS)
        for formula in filter(None, (row.units, row.starts, row.kernels, row.loads)):
            for node in ast.walk(ast.parse(formula, mode="eval").body):
                is_part = isinstance(node, (*PARTS, *OPERATORS))
                is_named = not isinstance(node, ast.Name) or node.id in names
                is_single = not isinstance(node, ast.Compare) or len(node.ops) == 1
                if not (is_part and is_named and is_single):
                    wrong.append((row.op, formula, ast.unparse(node)))
    assert wrong == []


# --- by torch's own lists -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database() -> dict[str, Any]:
    """What ran of the ops that torch tests itself with."""
    script = Path(__file__).parents[1] / "op_database.py"
    done = subprocess.run(
        [sys.executable, str(script), "rows"], capture_output=True, text=True, check=True, timeout=250
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_op_that_torch_tests_itself_with_is_in_the_table(database: dict[str, Any]) -> None:
    """None is left out: the rest are views, which move nothing."""
    assert database["unpriced"] == {}
    ran = [name for name, ops in database["ran"].items() if ops]
    assert len(ran) > 0.9 * len(database["ran"]) > 500


#: What placer traces as one op under a name of its own: gradients of layers, cells, attention and dropout.
GRADIENTS = {
    "dropout_backward",
    "scaled_dot_product_attention_backward",
    *(f"{layer}{cell}_backward" for layer in ("lstm", "gru", "rnn_tanh", "rnn_relu") for cell in ("", "_cell")),
}


def test_every_row_is_an_op_that_torch_or_placer_has(database: dict[str, Any]) -> None:
    """A misspelt name would price nothing, and nobody would see. Some ops of torch are made where they first run."""
    names = {*torch._C._dispatch_get_all_op_names(), *(op for ops in database["ran"].values() for op in ops)}
    torchs = {name.partition(".")[0] for name in names}
    gradients = {f"aten::{name}" for name in GRADIENTS}
    unknown = []
    for row in table():
        name = row.op if "::" in row.op else f"aten::{row.op}"
        optimizer = row.op == ANY_UPDATE or hasattr(torch.optim, row.op.removeprefix(UPDATE_PREFIX))
        if not {name, f"{name}_"} & (torchs | gradients) and row.op != LISTS and not optimizer:
            unknown.append(row.op)
    assert unknown == []
    assert any(name.startswith(f"aten::{LISTS}") for name in torchs)


#: Of torch's list of what MPS lacks: what it lacks only of some sizes, dtypes, layouts or arguments.
LACKING_IN_PART = {
    "nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d", "nn.functional.interpolate area",
    "to", "double", "cdouble", "float_power", "sparse.sampled_addmm", "sparse.mm reduce", "linalg.pinv hermitian",
    "masked.median",
}  # fmt: skip


def test_what_torch_lists_as_lacking_on_mps_is_marked(database: dict[str, Any]) -> None:
    """By the list of what its tests expect to fail for any dtype."""
    source = (Path(torch.__file__).parent / "testing" / "_internal" / "common_mps.py").read_text(encoding="utf-8")
    (listed,) = (
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "UNIMPLEMENTED_XFAILLIST"
    )
    assert isinstance(listed, ast.Dict)
    lacking = {
        key.value
        for key, value in zip(listed.keys, listed.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and value.value is None
    }
    names = {name for name in database["ran"] if name.replace(" ", "") in lacking}
    unmarked = {name for name in names if not {row_of(op).mps for op in database["ran"][name]} & {"lacking", "cpu"}}
    assert unmarked <= LACKING_IN_PART < names


# --- what it says nothing of ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["aten::no_such_op", "mine::relu_of_my_own", "mine::relu", "mine::relu_"])
def test_an_op_that_is_not_in_the_table_is_priced_by_its_bytes_called_a_guess_and_never_free(op: str) -> None:
    """Within a factor of three; also where an op of somebody else has the name of one of PyTorch's."""
    assert row_of(op) is NO_ROW
    square = spec(1000, 1000)
    guessed = describe(OpCall(op, (square,), (square,)), Context(1 << 30, recording=False))  # no cache holds it
    assert guessed.effort is None
    assert guessed.family == "other" or op.startswith("aten::")
    (seconds,), (sigma,), (source,) = CostModel(device()).price_works([guessed])
    assert seconds == pytest.approx(1e-6 + 8e6 / 1e10)
    assert (sigma, source) == (SIGMA["guess"], "guess")
    for inputs, outputs, least in (([spec(8, 8)], [spec()], 4), ([], [spec(64)], 256)):
        assert work(op, inputs, outputs).flops > 0
        assert work(op, inputs, outputs).bytes >= least


# --- its bounds ---------------------------------------------------------------------------------------------------


class LargeOp(NamedTuple):
    """``call`` on tensors of ``shapes`` (float32, or pairs of a shape and a dtype), and what it takes at the least.

    Written by hand from what an op computes. ``flops``: a multiply-add is two. ``sequence``: kernels of which each
    needs the one before. ``moved``: bytes read and written, or None for each operand and result once.
    """

    call: Callable[..., Any]
    shapes: tuple[Any, ...]
    flops: float = 0.0
    sequence: int = 1
    moved: float | None = None

    def example(self) -> tuple[Tensor, ...]:
        """Operands of zeros, which take no memory until they are touched; floating-point matrices are unit ones."""
        pairs = [s if isinstance(s[-1], torch.dtype) else (s, torch.float32) for s in self.shapes]
        operands = tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in pairs)
        for operand in operands:
            if operand.is_floating_point() and operand.dim() > 1:
                operand.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return operands


SQUARE, WHOLE, DOUBLE, COMPLEX = (4096, 4096), torch.int64, torch.float64, torch.complex64
N = 4096 * 4096
#: Columns of a panel of blocked factorisations, at the most.
PANEL = 128
#: Time steps inside one kernel, each of which waits for the one before, that take as long as a kernel at the least.
STEPS = 4


LARGE: dict[str, LargeOp] = {
    # Distances: 3 operations for each element of each pair, 2 in a product.
    "cdist": LargeOp(torch.cdist, ((4096, 512), (4096, 512)), 2.0 * 4096**2 * 512),
    "pdist": LargeOp(F.pdist, ((4096, 128),), 3.0 * 4096 * 4095 / 2 * 128),
    # Sorting and selection: every element is read, and compared at least once.
    "sort": LargeOp(torch.sort, (SQUARE,), N * log2(4096.0), 2),
    "topk": LargeOp(partial(torch.topk, k=10), (SQUARE,), N),
    "unique": LargeOp(torch.unique, (SQUARE,), N, 2, 4.0 * N),
    "nonzero": LargeOp(torch.nonzero, (SQUARE,), N, 2, 4.0 * N),
    # Linear algebra. Panels of a factorisation follow each other; the library has no batched kernel for QRs.
    "qr": LargeOp(torch.linalg.qr, ((512, 512),), 4 / 3 * 512**3, 512 // PANEL),
    "eigh": LargeOp(torch.linalg.eigh, ((512, 512),), 4 / 3 * 512**3, 512 // PANEL),
    "solve": LargeOp(torch.linalg.solve, ((1024, 1024), (1024, 16)), 2 / 3 * 1024**3, 1024 // PANEL),
    "matrix_exp": LargeOp(torch.matrix_exp, ((1024, 1024),), 10.0 * 1024**3, 5),
    # Products in other numbers than float32, and of small matrices.
    "mm of complex": LargeOp(torch.mm, (((1024, 1024), COMPLEX), ((1024, 1024), COMPLEX)), 8.0 * 1024**3),
    "bmm of small matrices": LargeOp(torch.bmm, ((8192, 16, 16), (8192, 16, 16)), 2.0 * 8192 * 16**3),
    # Random draws, histograms and searches.
    "bernoulli": LargeOp(torch.bernoulli, (SQUARE,), 10.0 * N),
    "searchsorted": LargeOp(torch.searchsorted, ((65536,), (N,)), 16.0 * N),
    # Interpolation and sampling: 4 taps of a bilinear, 16 of a bicubic, 8 of a trilinear result.
    "bilinear upsampling": LargeOp(
        partial(F.interpolate, scale_factor=2, mode="bilinear"), ((8, 64, 64, 64),), 8.0 * 8 * 64 * 128**2
    ),
    "grid_sample": LargeOp(
        partial(F.grid_sample, align_corners=False), ((32, 3, 224, 224), (32, 224, 224, 2)), 8.0 * 32 * 3 * 224**2
    ),
    # Sequences and transforms.
    "ctc_loss": LargeOp(
        lambda p, t: F.ctc_loss(p.log_softmax(-1), t, (512,) * 32, (60,) * 32),
        ((512, 32, 64), ((32, 60), WHOLE)),
        3.0 * 512 * 32 * 121,
        512 // STEPS,
    ),
    "lstm": LargeOp(nn.LSTM(256, 256, 2), ((512, 32, 256),), 2.0 * 512 * 32 * 2 * 8 * 256**2, 512),
    "fft": LargeOp(torch.fft.fft, (((1024, 8192), COMPLEX),), 2.5 * 1024 * 8192 * log2(8192.0)),
    "cumsum": LargeOp(partial(torch.cumsum, dim=-1), (SQUARE,), N),
    # Convolutions.
    "conv3d": LargeOp(nn.Conv3d(32, 64, 3, padding=1), ((4, 32, 16, 56, 56),), 2.0 * 4 * 32 * 64 * 27 * 16 * 56**2),
    # Functions of great cost, and others that move every element.
    "lgamma": LargeOp(torch.lgamma, (SQUARE,), 20.0 * N),
    "cross_entropy": LargeOp(F.cross_entropy, ((8192, 50_257), ((8192,), WHOLE)), 3.0 * 8192 * 50_257),
}


@cache
def step_of(name: str) -> Trace:
    """A step of a large op."""
    return trace_here(make_workload(Apply(LARGE[name].call), batch=LARGE[name].example(), mode="infer"))


def compulsory_bytes(name: str) -> float:
    """Bytes that an op reads and writes at the least."""
    op = LARGE[name]
    if op.moved is not None:
        return op.moved
    written = step_of(name).calls[-1].outputs
    return float(sum(t.nbytes for t in op.example()) + sum(t.stored_bytes for t in written))


@pytest.mark.parametrize("name", LARGE)
def test_no_large_op_does_less_than_its_bound(name: str) -> None:
    done = [work.effort for work in describe_step(step_of(name)) if work.effort is not None]
    assert sum(d.flops for d in done) >= LARGE[name].flops
    assert sum(d.bytes for d in done) >= compulsory_bytes(name)
    assert sum(d.kernels for d in done) >= LARGE[name].sequence


@pytest.mark.parametrize("gpu", ["A100", "T4", "RTX 3090", "H100"])
def test_no_gpu_of_the_catalog_prices_a_large_op_below_its_bound(gpu: str) -> None:
    """But for what L2 may hold from one op to the next. A kernel takes a microsecond at the least."""
    model, sheet = device_model(gpu), find_gpu(gpu)
    peak = 1e12 * max(sheet.float32_tflops, sheet.tensor_tf32_tflops)
    below = {}
    for name, op in LARGE.items():
        seconds = sum(model.price(describe_step(step_of(name)))[0])
        from_memory = (compulsory_bytes(name) - 2e6 * sheet.l2_mb) / (1e9 * sheet.bandwidth_gbps)
        bound = max(op.flops / peak, from_memory, 1e-6 * op.sequence)
        if seconds < bound:
            below[name] = seconds / bound
    assert not below
