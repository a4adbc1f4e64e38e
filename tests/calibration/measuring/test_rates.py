"""Rates: of a real CPU, and of made-up accelerators their queue, their dtypes, and what their first use takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from placer.calibration.measuring import rates as queueing
from placer.calibration.measuring.rates import flops_per_second, measure_rates, products_in_tf32
from placer.pricing.floors import allows_tf32

ISSUE, KERNEL, LAUNCH, SYNC = 4e-6, 1.5e-6, 6e-6, 8e-6


def test_a_cpu_has_the_rates_that_a_floor_needs() -> None:
    rates = measure_rates("cpu", seconds=0.5, clock=time.process_time)  # a busy machine changes no rate
    assert all(rates[name] > 0.0 for name in ("dispatch_seconds", "flops/float32", "bytes_per_second"))


class Queue:
    """A device with a queue; the tensors are a CPU's, and cost what ``per_flop`` and ``KERNEL`` say."""

    def __init__(self, per_flop: float, kernel: float = KERNEL) -> None:
        self.now, self.free, self.per_flop, self.kernel = 0.0, 0.0, per_flop, kernel

    def launch(self, seconds: float) -> None:
        self.now += ISSUE
        self.free = max(self.free, self.now + LAUNCH) + self.kernel + seconds

    def synchronize(self) -> None:
        self.now = max(self.now, self.free) + SYNC


@pytest.fixture
def on_queue(monkeypatch: pytest.MonkeyPatch) -> Callable[[Queue], dict[str, float]]:
    """Measures the rates of such a queue."""

    def measured(queue: Queue) -> dict[str, float]:
        class Tensor:
            def __init__(self, rows: int) -> None:
                self.rows = rows

            def neg_(self) -> None:
                queue.launch(0.0)

        def mm(a: Tensor, b: Tensor, out: Tensor) -> None:
            queue.launch(queue.per_flop * 2.0 * a.rows**3)

        monkeypatch.setattr(queueing.torch, "ones", lambda *shape, device: Tensor(shape[0]))
        monkeypatch.setattr(queueing.torch, "empty_like", lambda like: like)
        monkeypatch.setattr(queueing.torch, "mm", mm)
        return queueing.measure_queue("made-up", queue.synchronize, seconds=0.5, clock=lambda: queue.now)

    return measured


@pytest.mark.parametrize("flops_per_second", [1e10, 1e15])
def test_the_kernels_are_hidden_behind_products_on_slow_and_on_fast_devices(
    flops_per_second: float, on_queue: Callable[[Queue], dict[str, float]]
) -> None:
    rates = on_queue(Queue(1.0 / flops_per_second))
    assert rates == {
        "issue_seconds": pytest.approx(ISSUE, rel=0.02), "launch_seconds": pytest.approx(LAUNCH, rel=0.1),
        "dispatch_seconds": pytest.approx(KERNEL, rel=0.02), "sync_seconds": pytest.approx(SYNC, rel=0.02),
    }  # fmt: skip


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
def test_a_dtype_that_the_device_refuses_has_no_rate(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise error("Cannot convert a MPS Tensor to float64 dtype")

    monkeypatch.setattr(torch.Tensor, "to", refused)
    assert flops_per_second("cpu", torch.float64, lambda *_, **__: 1.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("before", ["highest", "high"])
def test_the_switch_of_products_is_left_as_it_was(before: str) -> None:
    torch.set_float32_matmul_precision(before)
    try:
        for on in (True, False):
            with products_in_tf32(on):
                assert allows_tf32("matmul") is on
            assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")


def test_libraries_are_loaded_once_and_shapes_of_convolutions_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of a library takes a second, that of another shape ten milliseconds."""
    now, loaded = [0.0], set[object]()

    def slow(name: str, key: object, seconds: float, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            now[0] += 1e-6
            for what, cost in ((name, seconds), ((name, key and args[0].shape), 0.01 if key else 0.0)):
                if what not in loaded:
                    loaded.add(what)
                    now[0] += cost
            return call(*args, **kwargs)

        return called

    def no_solver(*_: object) -> None:
        raise NotImplementedError("no solver on this device")

    monkeypatch.setattr(queueing.F, "conv2d", slow("cudnn", True, 1.0, torch.conv2d))
    monkeypatch.setattr(queueing.torch, "addmm", slow("cublas", False, 0.2, torch.addmm))
    monkeypatch.setattr(queueing.torch.fft, "rfft", slow("cufft", False, 0.3, torch.fft.rfft))
    monkeypatch.setattr(queueing.torch.linalg, "solve", no_solver)
    monkeypatch.setattr(queueing.machine, "has_context", lambda device: False)
    monkeypatch.setattr(queueing.machine, "memory", lambda device: (1, 2))
    found = queueing.first_use("cpu", lambda: None, lambda: now[0])
    assert {name: cost for name, cost in found.items() if name.startswith("first_use/")} == {
        "first_use/convolution": pytest.approx(1.01), "first_use/product": pytest.approx(0.2),
        "first_use/fourier": pytest.approx(0.3), "first_use/shape": pytest.approx(0.01),
    }  # fmt: skip
