"""Samples -> numbers: fits a device's cost model to what was measured here, and to what is known of other machines."""

from placer.calibration.fitting.accelerator import catalog_gpu, contradictions, fit_accelerator
from placer.calibration.fitting.adapt import LEAST_POINTS
from placer.calibration.fitting.cores import FEW_THREADS, core_of_steps, fit_cores
from placer.calibration.fitting.device import fit_device, of_nearest_pace
from placer.calibration.fitting.nearest import expectations, shipped_references

__all__ = [
    "FEW_THREADS",
    "LEAST_POINTS",
    "catalog_gpu",
    "contradictions",
    "core_of_steps",
    "expectations",
    "fit_accelerator",
    "fit_cores",
    "fit_device",
    "of_nearest_pace",
    "shipped_references",
]
