"""Views: no FLOPs, no bytes."""

from __future__ import annotations

from described import spec, work


def test_reading_one_number_moves_nothing() -> None:
    found = work("aten::_local_scalar_dense", [spec()], [])
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)


def test_a_view_moves_nothing() -> None:
    found = work("aten::transpose", [spec(64, 64)], [spec(64, 64, stride=(1, 64))], 0, 1, view=True)
    assert (found.family, found.flops, found.bytes) == ("view", 0, 0)
