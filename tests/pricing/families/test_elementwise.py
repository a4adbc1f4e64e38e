"""Elementwise ops: one FLOP or a function for each element."""

from __future__ import annotations

from described import feature, spec, work

from placer.pricing.describe import amounts
from placer.pricing.families.elementwise import FAMILY


def test_elementwise_ops() -> None:
    found = work("aten::add", [spec(4, 8), spec(8)], [spec(4, 8)], 1)
    assert (found.family, found.flops, found.bytes) == ("elementwise", 32, 4 * (32 + 8 + 32))
    assert feature(found, "broadcast") == 1
    assert work("aten::tanh", [spec(32)], [spec(32)]).flops > found.flops
    assert feature(work("aten::mul", [spec(4, 8, stride=(1, 4))], [spec(4, 8)]), "strided") == 1


def test_a_broadcast_operand_is_stored_once() -> None:
    found = work("aten::mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)])
    assert found.bytes == 4 * (32 + 8 + 32)


def test_rows_that_are_walked_one_by_one() -> None:
    by_row = work("aten::mul", [spec(6, 4), spec(6, 1)], [spec(6, 4)])
    assert (feature(by_row, "inner"), amounts(by_row)["restarts"]) == (4, 5)
    assert (feature(by_row, "block"), amounts(by_row)["blocks"]) == (24, 0)
    whole = work("aten::mul", [spec(6, 4), spec(6, 4)], [spec(6, 4)])
    assert (feature(whole, "inner"), amounts(whole)["restarts"]) == (24, 0)
    apart = work("aten::clone", [spec(6, 4, stride=(1, 6))], [spec(6, 4)])
    assert (feature(apart, "strided"), amounts(apart)["strided"]) == (1, 24)
    patches = work("aten::clone", [spec(5, 6, 3, 2, stride=(7, 1, 7, 1))], [spec(5, 6, 3, 2)])
    assert (feature(patches, "block"), amounts(patches)["blocks"]) == (6, 29)


def test_a_number_is_no_broadcast_operand() -> None:
    assert feature(work("aten::mul", [spec(4, 8), spec()], [spec(4, 8)]), "broadcast") == 0
    assert feature(work("aten::mul", [spec(4, 8), spec(4, 1)], [spec(4, 8)]), "broadcast") == 1
    assert feature(work("aten::mul_", [spec(4, 8), spec(4, 8)], [spec(4, 8)], in_place=True), "in_place") == 1


def test_what_is_not_one_instruction_is_evaluated() -> None:
    ops = {op: work(f"aten::{op}", [spec(64)], [spec(64)]) for op in ("add", "hardswish", "exp", "mish")}
    assert {op: FAMILY.evaluates(found) for op, found in ops.items()} == {
        "add": False, "hardswish": False, "exp": True, "mish": True,
    }  # fmt: skip
    assert not FAMILY.evaluates(work("aten::exp", [spec(0)], [spec(0)]))
