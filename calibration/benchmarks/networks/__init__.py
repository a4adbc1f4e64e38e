"""Random networks: what composition adds, learnt from whole steps.

Depth, width, kind of layer, activation, normalization, batch and mode are drawn at random. No network of the validation
suite is ever built here: a model fitted on what it is scored with would only remember.
"""

from placer.calibration.benchmarks.networks.proposal import propose

__all__ = ["propose"]
