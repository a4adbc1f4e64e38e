"""Updates of parameters."""

from __future__ import annotations

from described import feature, spec, work


def test_an_optimizers_passes() -> None:
    adam = work("optimizer::Adam", [spec(100)], [], ("weight_decay", True), phase="optimizer")
    sgd = work("optimizer::SGD", [spec(100)], [], ("momentum", True), phase="optimizer")
    assert (adam.bytes, sgd.bytes) == (7 * 400, 3 * 400)
    assert (feature(adam, "weight_decay"), feature(adam, "momentum")) == (1, 0)
    assert feature(sgd, "momentum") == 1
