"""Prices ops on a GPU that nobody measured here, from its data sheet and published measurements."""

from placer.pricing.gpu.device_model import USUAL, networks
from placer.pricing.gpu.physics import COLUMNS, LAUNCH, Floor, Row, inputs, kernel_seconds, rows_of
from placer.pricing.gpu.published import FILE, edition, row_name, row_size

__all__ = [
    "COLUMNS", "FILE", "LAUNCH", "USUAL", "Floor", "Row", "edition", "inputs", "kernel_seconds", "networks", "row_name",
    "row_size", "rows_of",
]  # fmt: skip
