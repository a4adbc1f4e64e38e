"""The rates of a CPU."""

from __future__ import annotations

import time

from placer.calibration.measuring.rates import measure_rates


def test_a_cpu_has_the_rates_that_a_floor_needs() -> None:
    rates = measure_rates("cpu", seconds=1.0, clock=time.process_time)  # a busy machine changes no rate
    assert all(rates[name] > 0.0 for name in ("dispatch_seconds", "flops/float32", "bytes_per_second"))
