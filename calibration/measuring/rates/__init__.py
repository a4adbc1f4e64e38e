"""Measures what a data sheet says of a device: peak arithmetic, bandwidth, dispatch, launch, waits, copies, pages.

These rates anchor the physical floor under every op, and a person can compare them with the machine's specification.
"""

from placer.calibration.measuring.rates.device_rates import measure_rates, recount_fresh_pages

__all__ = ["measure_rates", "recount_fresh_pages"]
