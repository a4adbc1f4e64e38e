"""Step time from op times: one clock, two clocks, and the host's time to issue an op."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Literal

import pytest

from placer.pricing.framework import framework_counts
from placer.pricing.prediction import PricedTrace
from placer.pricing.timeline import (
    FRESH,
    SIZES,
    Span,
    StepTime,
    copy_seconds,
    on_accelerator,
    on_cpu,
)
from placer.profile.profile import Device
from placer.tracing.trace_data import OpCall, TensorSpec, Trace
from placer.workload import Loading

MEGABYTE = TensorSpec((250_000,), (1,), "float32")


def priced(
    seconds: list[float], host: list[float] | None = None, *, mode: Literal["train", "infer"] = "train", **totals: Any
) -> PricedTrace:
    n = len(seconds)
    values: dict[str, Any] = {"parameters": (), "buffers": (), "batch": (), "outputs": (), **totals}
    trace = Trace(tuple(OpCall("aten::add", (), ()) for _ in seconds), mode, **values)
    issued = tuple(host or [0.0] * n)
    counts = framework_counts(trace, issued)
    families, sigma, sources = ("elementwise",) * n, (0.1,) * n, ("guess",) * n
    return PricedTrace(trace, "cuda", 1, families, tuple(seconds), issued, sigma, sources, counts)  # type: ignore[arg-type]


LINE = {"copy/h2d/pageable/bytes_per_second": 1e9, "copy/h2d/pageable/seconds_per_tensor": 1e-5}
COPIES = {
    **LINE,
    "copy/h2d/pinned/bytes_per_second": 1e10, "copy/h2d/pinned/seconds_per_tensor": 1e-6,
    "copy/d2h/pageable/bytes_per_second": 5e8, "copy/d2h/pageable/seconds_per_tensor": 2e-5,
}  # fmt: skip


def fit(framework: dict[str, float] | None = None, **rates: float) -> Device:
    return Device("cuda", 1, {**COPIES, **rates}, {}, framework or {}, {})


def assert_adds_up(step: StepTime) -> None:
    assert sum(step.components.values()) == pytest.approx(step.seconds, rel=1e-12)
    assert all(value >= -1e-15 for value in step.components.values()), step.components


def test_loading_takes_its_time_before_a_step_or_beside_it() -> None:
    ops = priced([1e-3], [1e-4])
    steps = {
        (device, overlapped): run(ops, fit(), loading=Loading(3e-3, overlapped), **more)
        for device, run, more in (("cpu", on_cpu, {}), ("cuda", on_accelerator, {"data": "device"}))
        for overlapped in (False, True)
    }
    seconds = {key: (step.seconds, step.components["loading"]) for key, step in steps.items()}
    assert seconds == {
        ("cpu", False): pytest.approx((4e-3, 3e-3)),
        ("cpu", True): pytest.approx((3e-3, 2e-3)),
        ("cuda", False): pytest.approx((3.1e-3, 2.1e-3)),  # the device works while the host loads
        ("cuda", True): pytest.approx((3e-3, 2e-3)),
    }
    quick = on_cpu(ops, fit(), loading=Loading(1e-4, overlapped=True))
    assert (quick.seconds, quick.components["loading"]) == (1e-3, 0.0)


def test_a_sync_waits_for_the_device_and_costs_its_own_time() -> None:
    free = on_accelerator(priced([1e-3], [1e-4]), fit(sync_seconds=1e-5), data="device")
    waits = on_accelerator(priced([1e-3], [1e-4], syncs=2), fit(sync_seconds=1e-5), data="device")
    assert free.seconds == pytest.approx(1e-3)  # issuing hides behind the step before
    assert waits.seconds == pytest.approx(1e-4 + 1e-3 + 2e-5)
    assert waits.components["sync"] == pytest.approx(2e-5)
    assert_adds_up(waits)
    assert on_accelerator(priced([1e-3], [1e-4], syncs=1), fit(), data="device").components["sync"] == 0.0


def test_a_read_waits_where_it_is_and_once() -> None:
    """After a read in mid-step the device idles until more is issued."""
    ops = priced([1e-3, 0.0, 1e-3], [1e-4, 1e-5, 1e-3], syncs=1)
    add = ops.trace.calls[0]
    read = replace(ops.trace, calls=(add, add._replace(op="aten::_local_scalar_dense", syncs=1), add))
    rates = fit(sync_seconds=1e-5)
    assert on_accelerator(ops, rates, data="device").seconds == pytest.approx(1e-4 + 2e-3 + 1e-5, rel=0.02)
    step = on_accelerator(replace(ops, trace=read), rates, data="device")
    assert step.seconds == pytest.approx(2e-3 + 1e-5 + 1e-3)
    assert step.components["sync"] == pytest.approx(1e-5)
    spans: list[Span] = []
    on_accelerator(replace(ops, trace=read), rates, data="device", spans=spans)
    assert [span.seconds for span in spans if span.label == "sync"] == [1e-5]
    before = replace(read, calls=(add, add, add._replace(syncs=1)))  # ``.cpu()`` between two ops
    copied = on_accelerator(replace(ops, trace=before), rates, data="device")
    assert copied.components["sync"] == pytest.approx(1e-5)
    unread = replace(ops, trace=replace(read, syncs=0))  # the advice asks what a step without the read would take
    assert on_accelerator(unread, rates, data="device").components["sync"] == 0.0


def test_the_host_goes_on_during_a_pinned_copy_and_waits_for_a_pageable_one() -> None:
    ops = priced([5e-3], [1e-5], batch=(MEGABYTE,))
    assert on_accelerator(ops, fit(), data="pinned").seconds == pytest.approx(5e-3 + 1e-4 + 1e-6)
    slow = priced([1e-6], [5e-3], batch=(MEGABYTE,))  # the device copies while the host issues the rest
    assert on_accelerator(slow, fit(), data="pinned").seconds == pytest.approx(5e-3)
    assert on_accelerator(ops, fit(), data="host").seconds == pytest.approx(5e-3 + 1e-3 + 1e-5 + 1e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("data", "outputs", "stay"),
    [
        ("host", None, False),
        ("pinned", None, False),
        ("device", None, True),
        ("host", "device", True),
        ("device", "host", False),
        ("device", "device", True),
    ],
)
def test_outputs_of_an_inference_stay_where_data_stay_unless_told_otherwise(
    data: str, outputs: str | None, stay: bool
) -> None:
    step = priced([1e-6], [1e-6], mode="infer", outputs=(MEGABYTE,))
    found = on_accelerator(step, fit(), data=data, outputs=outputs)
    assert found.components["copy"] == pytest.approx(0.0 if stay else 2e-3 + 2e-5)
    assert_adds_up(found)


@pytest.mark.parametrize("seed", range(6))
def test_components_always_add_up(seed: int) -> None:
    draw = Random(seed)
    n = draw.choice([1, 7, 1500])
    ops = priced(
        [draw.choice([0.0, 1e-6, 1e-4]) * draw.random() for _ in range(n)],
        [1e-5 * draw.random() for _ in range(n)],
        mode=draw.choice(["train", "infer"]),
        batch=(MEGABYTE,) * draw.randrange(3),
        outputs=(MEGABYTE,) * draw.randrange(2),
        syncs=draw.randrange(3),
    )
    rates = fit({"forward_op": 1e-6}, launch_seconds=5e-6, sync_seconds=1e-5)
    assert_adds_up(on_accelerator(ops, rates, data=draw.choice(["host", "pinned", "device"])))
    assert_adds_up(on_cpu(ops, rates))


# --- copies -----------------------------------------------------------------------------------------------------------

#: Seconds of each of ``SIZES``.
MEASURED = dict(zip(SIZES, (1e-5, 2e-5, 9e-5, 7e-4, 5e-2), strict=True))
RATES = {**LINE, **{f"copy/h2d/pageable/{size}": seconds for size, seconds in MEASURED.items()}}


def test_only_what_is_fresh_memory_is_as_dear_as_the_largest() -> None:
    last = (MEASURED[4 << 20] - MEASURED[512 << 10]) / (4 - 0.5)  # of each MB
    for size, expected in (
        (FRESH - (1 << 20), MEASURED[4 << 20] + 27 * last),
        (FRESH, MEASURED[64 << 20] / 2),
        (256 << 20, 4 * MEASURED[64 << 20]),
    ):
        assert copy_seconds((size,), RATES, "h2d", "pageable") == pytest.approx(expected)
