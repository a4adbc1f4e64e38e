"""The host of a GPU of the catalog: every key that pricing reads, in proportion to the CPU that was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described import spec, work
from priced import device

from placer.pricing import FAMILIES, host_seconds
from placer.pricing.framework import LEARNT
from placer.pricing.gpu.host import REFERENCE_DISPATCH, published_host
from placer.profile import find_gpu, gpus

#: What ``timeline`` and ``predict`` read besides copies.
RATES = ("launch_seconds", "sync_seconds", "issue_seconds", "context_seconds", "first_call_seconds")
T4 = find_gpu("T4")


def test_every_gpu_has_what_the_timeline_reads() -> None:
    for sheet in gpus().values():
        rates, framework = published_host(sheet, None)
        for name in RATES:
            assert 0.0 < rates[name] < 10.0, (sheet.name, name)
        assert framework["host"] > 0.0


def test_every_family_is_issued() -> None:
    _, framework = published_host(T4, None)
    for family in FAMILIES:
        assert 0.0 < framework[f"host/{family}"] < 1e-3, family


def test_an_op_far_from_its_family_has_its_own_time() -> None:
    _, framework = published_host(T4, None)
    x, c = spec(8, 16), spec(16)
    layer_norm = work("aten::native_layer_norm", [x, c, c], [x, x, x])
    batch_norm = work("aten::native_batch_norm", [spec(8, 16, 4, 4), c, c], [spec(8, 16, 4, 4), c, c], True)
    assert 0.0 < host_seconds(layer_norm, framework) < host_seconds(batch_norm, framework)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_an_update_is_issued_for_all_tensors_at_once(optimizer: str) -> None:
    _, framework = published_host(T4, None)
    one = work(f"optimizer::{optimizer}", [spec(64)], [spec(64)])
    hundred = replace(one, sizes=(one.sizes[0], 100.0))
    assert 20e-6 < host_seconds(one, framework) < 1e-3
    assert host_seconds(hundred, framework) < host_seconds(one, framework) < 100 * host_seconds(hundred, framework)


@pytest.mark.parametrize(("times", "scale"), [(1.0, 1.0), (1.5, 1.5), (0.75, 0.75), (100.0, 2.0), (0.001, 0.5)])
def test_a_slower_cpu_issues_more_slowly_within_bounds(times: float, scale: float) -> None:
    rates, framework = published_host(T4, None)
    scaled_rates, scaled = published_host(T4, device(dispatch_seconds=times * REFERENCE_DISPATCH))
    issued = [name for name in framework if name.partition("/")[0] in ("host", "host_update")]
    assert {name for name in scaled if name.startswith("host")} == set(issued)
    for name in issued:
        assert scaled[name] == pytest.approx(scale * framework[name]), name
    assert scaled_rates["issue_seconds"] == pytest.approx(scale * rates["issue_seconds"])
    for name in ("launch_seconds", "sync_seconds", "context_seconds", "copy/h2d/pinned/bytes_per_second"):
        assert scaled_rates[name] == rates[name]


def test_what_lies_between_ops_is_the_cpus_own() -> None:
    cpu = replace(device(), framework={"step": 3e-6, "autograd_node": 1e-6, "host": 1.0, "not a coefficient": 1.0})
    _, framework = published_host(T4, cpu)
    assert (framework["step"], framework["autograd_node"]) == (3e-6, 1e-6)
    assert framework["host"] < 1e-3
    assert "not a coefficient" not in framework
    _, usual = published_host(T4, None)
    assert {name for name in usual if not name.startswith("host")} <= set(LEARNT)
    assert all(0.0 < usual[name] <= 20e-6 for name in usual if not name.startswith("host"))
    assert usual["step"] > 0.0
