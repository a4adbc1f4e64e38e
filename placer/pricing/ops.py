"""The table of ops: what each op of PyTorch does, whatever runs it. ``ops.csv`` is the table, a row an op.

Formulas in it name what ``effort.Amounts`` and the op's shape have. docs/dev/new-op.md says how to add a row.
"""

from __future__ import annotations

import ast
import csv
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from placer.lazy import cached_property

OPS_FILE = Path(__file__).with_name("ops.csv")
#: What stands above the names of ops.
HEAD = "op"
#: The kind of ops whose arithmetic, and time on a CPU, their families know; and of layers of 8-bit weights. No
#: calibration measures these: their prices are guesses.
COUNTED, QUANTIZED = "counted", "quantized"
#: The row of updates by an optimizer that has none of its own, and of ops over lists of tensors.
ANY_UPDATE, LISTS = "optimizer", "_foreach"
#: Prefix of the name of an update; the optimizer's class follows.
UPDATE_PREFIX = "optimizer::"
#: Separates an op's name from the suffix of its kernel.
SUFFIX = "."
#: What formulas may call beside amounts of the call.
FUNCTIONS: Mapping[str, Callable[..., float]] = {"log2": math.log2, "max": max, "min": min}
_ARITHMETIC: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Op:
    """A row of the table; the same columns in the same order.

    Attributes:
        op: name, without ``aten::``. An op in place has the row of the same name without ``_``, unless it has its own.
        family: in ``shapes.FAMILIES``; "" of an op that is elementwise where its result is as large as its operands.
        kind: ops that a CPU runs alike; "" of an op of which the table knows no more than its family.
        flops: FLOPs of an element that its family counts, where it is elementwise.
        units, starts: formulas of what its arithmetic is proportional to, and of what is begun anew, such as rows.
        executed, executed_start: FLOPs that an accelerator executes for each, those of idle threads included.
        passes, again: over operands and results, and more over results alone.
        kernels: formula of those that follow each other on an accelerator; of an update, those of one tensor.
        waits: times that the host waits for an accelerator inside the op.
        loads: formula of loads that follow each other in the busiest thread of an accelerator.
        cycles, start_cycles: of one core of a CPU for each unit and start; of a list, for each further tensor.
        shared: whether the cores of a CPU share it.
        list_kernels, list_passes: of an update, its ops over the list of all tensors and their passes over memory.
        mps: how it differs on an Apple GPU.
        traits: what else pricing asks for; ``traits.csv`` has the words.
        source: where what is not obvious was read or measured.
    """

    op: str
    family: str
    kind: str
    flops: float
    units: str
    starts: str
    executed: float
    executed_start: float
    passes: float
    again: float
    kernels: str
    waits: float
    loads: str
    cycles: float
    start_cycles: float
    shared: bool
    list_kernels: float
    list_passes: float
    mps: str
    traits: frozenset[str]
    source: str

    @cached_property
    def backward(self) -> bool:
        """Whether it is the gradient of another op."""
        return self.op.endswith(("_backward", "_backward_data"))

    @cached_property
    def has_kernels(self) -> bool:
        """Whether its operands select among kernels (``work.kernel_of``)."""
        return bool(self.number("number") or self.traits & _KERNEL_TRAITS)

    @cached_property
    def grain(self) -> float:
        """Elements below which a CPU's loop stays on one core, where the op has a grain of its own; else 0."""
        return self.number("grain")

    def number(self, trait: str) -> float:
        """The number of a trait that has one (``gates=4``); 0.0 without it."""
        return next((float(t.partition("=")[2]) for t in self.traits if t.startswith(f"{trait}=")), 0.0)


class Effort(NamedTuple):
    """What one op call does, whatever runs it.

    Attributes:
        flops: arithmetic, a multiply-add counted as two.
        bytes: read and written, every pass over an operand counted.
        kernels: those that follow each other on an accelerator; each waits for the one before.
        waits: times that the host waits for an accelerator inside the op.
        cycles: of one core of a CPU, operands in its caches.
        shared: whether torch shares the op among the cores of a CPU.
        kind: of op, as the table of ops has them.
        starts: rows, matrices or bags that are begun anew.
    """

    flops: float
    bytes: float
    kernels: float = 1.0
    waits: float = 0.0
    cycles: float = 0.0
    shared: bool = True
    kind: str = ""
    starts: float = 0.0


#: Traits of ops whose operands select among kernels.
_KERNEL_TRAITS = frozenset(("accumulates", "channels", "counts", "mask"))
#: What stands for an empty cell of a number.
_USUAL = {"flops": 1.0, "executed": 1.0, "passes": 1.0}
_NUMBERS = (
    "flops", "executed", "executed_start", "passes", "again", "waits", "cycles", "start_cycles", "list_kernels",
    "list_passes",
)  # fmt: skip


@cache
def _cells() -> Mapping[str, list[str]]:
    """The cells of every row by the op's name, in the order of the fields of ``Op``."""
    with OPS_FILE.open(encoding="utf-8", newline="") as lines:
        return {row[0]: row for row in csv.reader(lines)}


def table() -> list[Op]:
    """All rows."""
    return [_row(name) for name in _cells() if name != HEAD]


@cache
def _row(name: str) -> Op:
    head, cells = _cells()[HEAD], _cells()[name]
    if len(cells) != len(head):
        raise ValueError(f"ops.csv: the row {name!r} has {len(cells)} cells; the table has {len(head)} columns")
    values: dict[str, Any] = dict(zip(head, cells, strict=True))
    for column in _NUMBERS:
        try:
            values[column] = float(Fraction(values[column])) if values[column] else _USUAL.get(column, 0.0)
        except ValueError:
            raise ValueError(f"ops.csv: {column} of {name!r} is no number: {values[column]!r}") from None
    return Op(**{**values, "shared": values["shared"] != "no", "traits": frozenset(values["traits"].split())})


#: The row of an op that is not in the table: nothing is known of it.
NO_ROW = Op("", "", "", 1.0, "", "", 0.0, 0.0, 1.0, 0.0, "", 0.0, "", 0.0, 0.0, True, 0.0, 0.0, "", frozenset(), "")


@cache
def row_of(op: str) -> Op:
    """The row of an op, named as in a trace or as its kernel; ``NO_ROW`` of one that has none."""
    name = op.partition(SUFFIX)[0].removeprefix("aten::")
    rows = _cells()
    if name.startswith(LISTS):
        name = LISTS
    for candidate in (name, name.rstrip("_")):
        if candidate in rows:
            return _row(candidate)
    return _row(ANY_UPDATE) if name.startswith(UPDATE_PREFIX) else NO_ROW


def family_of(op: str) -> str | None:
    """The family that the table says; None where the operands decide. What is not PyTorch's own is ``other``."""
    return row_of(op).family or (None if op.startswith("aten::") else "other")


@cache
def rows_of_family(family: str) -> tuple[Op, ...]:
    """The rows of a family. No other row is read: hundreds of GPUs ask for two families of them."""
    column = _cells()[HEAD].index("family")
    return tuple(_row(name) for name, cells in _cells().items() if cells[column] == family)


def updates() -> list[Op]:
    """The rows of optimizers that update all tensors together, op by op over their list."""
    rows = rows_of_family(ANY_UPDATE)
    return [row for row in rows if row.op.startswith(UPDATE_PREFIX) and not row.traits & {"alone", "no_lists"}]


@cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, OPS_FILE.name, "eval").body


def evaluate(formula: str, names: Any, otherwise: float) -> float:
    """A formula of the table, by what ``names`` has; ``otherwise`` of an empty one.

    Formulas are numbers, names, arithmetic, one comparison, ``a if b else c``, and calls of ``FUNCTIONS`` and of names.
    Raises ValueError of any other, and of one that names what the call does not have.
    """
    if not formula:
        return otherwise
    try:
        return float(_value(_parsed(formula), names))
    except (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"ops.csv: the formula {formula!r} does not fit its op: {error}") from error


def _value(node: ast.expr, names: Any) -> Any:
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.Constant(value=number):
            return number
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _ARITHMETIC[type(op)](_value(left, names), _value(right, names))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            function = FUNCTIONS[name] if name in FUNCTIONS else names[name]
            return function(*(_value(argument, names) for argument in arguments))
    raise LookupError(f"no formula has {ast.unparse(node)!r}")
