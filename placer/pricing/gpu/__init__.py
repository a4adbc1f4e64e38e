"""Prices ops on a GPU that nobody measured here, from its data sheet and published measurements."""

from placer.pricing.gpu.apple import FITTED, AppleModel, host_factor, mps_host
from placer.pricing.gpu.device_model import FILE, USUAL, edition, networks, row_name, row_size
from placer.pricing.gpu.physics import COLUMNS, LAUNCH, Floor, Row, inputs, kernel_seconds, rows_of
from placer.pricing.networks import Array

__all__ = [
    "COLUMNS", "FILE", "FITTED", "LAUNCH", "USUAL", "AppleModel", "Array", "Floor", "Row", "edition", "host_factor",
    "inputs", "kernel_seconds", "mps_host", "networks", "row_name", "row_size", "rows_of",
]  # fmt: skip
