"""Samples -> numbers: fits a device's cost model to what was measured here, and to what is known of other machines."""

from placer.calibration.fitting.accelerator import fit_accelerator
from placer.calibration.fitting.catalog import catalog_gpu, contradictions
from placer.calibration.fitting.device import fit_device
from placer.calibration.fitting.families import LEAST_POINTS, ChosenHyperparameters
from placer.calibration.fitting.references import expectation, pace_of_class, shipped_references
from placer.calibration.fitting.sampling import samples

__all__ = [
    "LEAST_POINTS",
    "ChosenHyperparameters",
    "catalog_gpu",
    "contradictions",
    "expectation",
    "fit_accelerator",
    "fit_device",
    "pace_of_class",
    "samples",
    "shipped_references",
]
