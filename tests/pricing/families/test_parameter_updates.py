"""Updates of parameters."""

from __future__ import annotations

from described import feature, spec, work

from placer.pricing.describe import Context, amounts, describe, ops_inside
from placer.tracing import OpCall


def test_an_optimizers_passes() -> None:
    adam = work("optimizer::Adam", [spec(100)], [], ("weight_decay", True), phase="optimizer")
    sgd = work("optimizer::SGD", [spec(100)], [], ("momentum", True), phase="optimizer")
    assert (adam.bytes, sgd.bytes) == (7 * 400, 3 * 400)
    assert (feature(adam, "weight_decay"), feature(adam, "momentum")) == (1, 0)
    assert feature(sgd, "momentum") == 1


def test_what_an_update_does_once_is_shared_among_its_tensors() -> None:
    call = OpCall("optimizer::Adam", (spec(100),), (), (("fused", True),), phase="optimizer")
    found = describe(call, Context(footprint_bytes=0, recording=True, updates=4))
    assert (found.flops, found.sizes[:2], amounts(found)["step_share"]) == (1200, (100, 4), 0.25)
    assert (feature(found, "fused"), ops_inside(found)) == (1, 12)
