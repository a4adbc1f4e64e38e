"""The host's time to issue an op."""

from __future__ import annotations

from dataclasses import replace

import pytest
from priced import call, device

from placer.pricing.cost_model import CostModel
from placer.pricing.host_time import waits_for_device
from placer.tracing.trace_data import Trace


def test_the_host_time_of_an_op_or_its_family_or_any() -> None:
    fit = replace(device(), device="cuda", framework={"host": 1e-6, "host/matmul": 2e-6, "host/aten::bmm": 3e-6})
    calls = (call("aten::add", 4, 4), call("aten::mm", 4, 4), call("aten::bmm", 4, 4))
    assert CostModel(fit).price(Trace(calls, "infer", (), (), (), ())).host_seconds == (1e-6, 2e-6, 3e-6)


def test_an_update_is_issued_for_all_its_tensors_at_once() -> None:
    known = {"host": 1e-6, "host/optimizer": 2e-6, "host_update/optimizer": 9e-5, "host_update/optimizer::SGD": 3e-5}
    fit = replace(device(), device="cuda", framework=known)
    for name, whole in (("Adam", 9e-5), ("SGD", 3e-5)):
        calls = (*(call(f"optimizer::{name}", 4, 4, phase="optimizer") for _ in range(30)), call("aten::mm", 4, 4))
        *updates, product = CostModel(fit).price(Trace(calls, "train", (), (), (), ())).host_seconds
        assert updates == [pytest.approx(whole / 30 + 2e-6)] * 30
        assert product == 1e-6


def test_kernels_that_follow_each_other_pause_in_between() -> None:
    """The pause is in no kernel's own time: an op of many small ones takes that much longer."""
    calls = (call("aten::mm", 4, 4), call("aten::add", 4, 4))
    trace = Trace(calls, "infer", (), (), (), ())
    fit = replace(device(), device="cuda", framework={"kernels/aten::mm": 12.0})
    before = CostModel(fit).price(trace)
    assert before.kernels == (12.0, 1.0)
    pausing = CostModel(replace(fit, rates={**fit.rates, "kernel_gap_seconds": 1e-6})).price(trace)
    longer = [after - seconds for after, seconds in zip(pausing.seconds, before.seconds, strict=True)]
    assert longer == [pytest.approx(12e-6), pytest.approx(1e-6)]
    view = replace(trace, calls=(calls[0]._replace(op="aten::t", view=True),))
    assert CostModel(replace(fit, rates={**fit.rates, "kernel_gap_seconds": 1e-6})).price(view).seconds == (0.0,)


def test_a_cpu_has_no_kernels_to_pause_between() -> None:
    trace = Trace((call("aten::mm", 4, 4),), "infer", (), (), (), ())
    fit = device(kernel_gap_seconds=1.0)
    priced = CostModel(fit).price(trace)
    assert priced.kernels == ()
    assert priced.seconds == CostModel(device()).price(trace).seconds


@pytest.mark.parametrize(
    ("kernel", "waits"),
    [("aten::_local_scalar_dense", True), ("aten::nonzero", True), ("aten::masked_select", True),
     ("aten::index.mask", True), ("aten::_linalg_check_errors", True), ("aten::sum.mask", False),
     ("aten::index", False), ("aten::add.number", False)],
)  # fmt: skip
def test_in_these_ops_the_host_waits_for_the_device(kernel: str, waits: bool) -> None:
    assert waits_for_device(kernel) == waits
