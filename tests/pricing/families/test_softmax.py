"""Softmax: rows of the innermost dimension."""

from __future__ import annotations

from described import feature, spec, work

from placer.pricing.describe import amounts
from placer.pricing.families.sharing import FINE_GRAIN


def test_a_softmax_has_twelve_flops_an_element_and_rows() -> None:
    found = work("aten::_softmax", [spec(4, 8, 16)], [spec(4, 8, 16)], -1, False)
    assert (found.family, found.flops, found.sizes[:2]) == ("softmax", 12 * 512, (512, 16))
    assert feature(found, "strided") == 0
    apart = work("aten::_log_softmax_backward_data", [spec(8, 4, stride=(1, 8)), spec(8, 4)], [spec(8, 4)])
    assert (feature(apart, "strided"), apart.sizes[:2]) == (1, (32, 4))
    assert work("aten::_softmax", [spec()], [spec()]).sizes[:2] == (1, 1)


def test_it_is_shared_among_cores_early() -> None:
    found = work("aten::_softmax", [spec(3, FINE_GRAIN)], [spec(3, FINE_GRAIN)])
    assert amounts(found, 2)["core_flops"] == found.flops / 2
    assert amounts(found, 8)["core_flops"] == found.flops / 3
