"""The host's time to issue an op."""

from __future__ import annotations

from dataclasses import replace

import pytest
from priced import call, device

from placer.pricing.cost_model import CostModel
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
