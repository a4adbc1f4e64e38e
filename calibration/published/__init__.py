"""Others' published measurements: read, cleaned, and turned into what is known of GPUs that nobody here owns."""

from placer.calibration.published.compiled_steps import CompiledPair, read_compiled_pairs, spread_pairs
from placer.calibration.published.networks import NotBuilt, trace_step
from placer.calibration.published.samples import FOLDS, HELD_OUT_GPUS, base_network, catalog_gpu, fold
from placer.calibration.published.selection import chosen_steps
from placer.calibration.published.steps import PublishedStep, read_steps

__all__ = [
    "FOLDS",
    "HELD_OUT_GPUS",
    "CompiledPair",
    "NotBuilt",
    "PublishedStep",
    "base_network",
    "catalog_gpu",
    "chosen_steps",
    "fold",
    "read_compiled_pairs",
    "read_steps",
    "spread_pairs",
    "trace_step",
]
