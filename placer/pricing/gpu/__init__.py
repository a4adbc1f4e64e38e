"""Prices ops on a GPU that nobody measured here, from its data sheet and published measurements."""

from placer.pricing.gpu.device_model import FILE, USUAL, edition, networks
from placer.pricing.gpu.physics import COLUMNS, LAUNCH, Floor, Row, inputs, kernel_seconds, rows_of

__all__ = [
    "COLUMNS", "FILE", "LAUNCH", "USUAL", "Floor", "Row", "edition", "inputs", "kernel_seconds", "networks", "rows_of",
]  # fmt: skip
