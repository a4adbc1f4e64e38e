"""Prices ops on a GPU that nobody measured here, from its data sheet and published measurements."""

from placer.pricing.gpu.device_model import FILE, USUAL, edition, networks
from placer.pricing.gpu.physics import LAUNCH, Row, inputs, kernel_seconds, rows_of

__all__ = [
    "FILE", "LAUNCH", "USUAL", "Row", "edition", "inputs", "kernel_seconds", "networks", "rows_of",
]  # fmt: skip
