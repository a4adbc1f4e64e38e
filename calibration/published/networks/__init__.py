"""The networks of the published steps, built without weights: each step as a workload, and its trace."""

from placer.calibration.published.networks.build import build
from placer.calibration.published.networks.not_built import NotBuilt
from placer.calibration.published.networks.traces import identity, trace_step

__all__ = ["NotBuilt", "build", "identity", "trace_step"]
