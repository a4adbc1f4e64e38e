"""The table of ops: well formed, complete by torch's own lists, and nothing is below its physical bound."""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from priced import device
from pricing.large_ops import LARGE, compulsory_bytes, step_of

from placer.pricing import FAMILIES, Context, CostModel, describe, describe_step, device_model
from placer.pricing.effort import Amounts
from placer.pricing.ops import (
    ANY_UPDATE,
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
from placer.tracing import OpCall, TensorSpec


def call(op: str, *shapes: tuple[int, ...]) -> OpCall:
    specs = tuple(TensorSpec(shape, tuple(1 for _ in shape), "float32") for shape in shapes)
    return OpCall(op, specs, specs[:1])


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
    operands = call("aten::relu", (4, 4))
    row = row_of("aten::relu")
    amounts = Amounts(operands, row, Loop.read(operands, row), 16.0)
    with pytest.raises(ValueError, match=r"formula|float"):
        evaluate(formula, amounts, 1.0)
    assert evaluate("", amounts, 1.0) == 1.0
    assert evaluate("numel+2*size(0,-1)", amounts, 1.0) == 24.0


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


# --- what it says of a call ---------------------------------------------------------------------------------------

#: An op of a step whose operands no core's cache holds.
ALONE = Context(1 << 30, recording=False)


@pytest.mark.parametrize("op", ["aten::no_such_op", "mine::relu_of_my_own", "mine::relu", "mine::relu_"])
def test_an_op_that_is_not_in_the_table_says_so(op: str) -> None:
    """Also where an op of somebody else has the name of one of PyTorch's."""
    assert row_of(op) is NO_ROW
    assert describe(call(op, (4,)), ALONE).effort is None


@pytest.mark.parametrize("op", ["mine::op", "aten::no_such_op"])
def test_an_op_without_a_row_is_priced_by_its_bytes_within_a_factor_of_three_and_called_a_guess(op: str) -> None:
    work = describe(call(op, (1000, 1000)), ALONE)
    (seconds,), (sigma,), (source,) = CostModel(device()).price_works([work])
    assert seconds == pytest.approx(1e-6 + 8e6 / 1e10)
    assert (sigma, source) == (SIGMA["guess"], "guess")


# --- its bounds ---------------------------------------------------------------------------------------------------


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
