"""Others' published measurements: clean tables, and what is learnt from them of GPUs that nobody here owns."""

from placer.calibration.lab.published.networks import trace_step
from placer.calibration.lab.published.table import (
    PublishedOp,
    PublishedProblem,
    PublishedStep,
    read_ops,
    read_problems,
    read_steps,
)

__all__ = [
    "PublishedOp", "PublishedProblem", "PublishedStep", "read_ops", "read_problems", "read_steps", "trace_step",
]  # fmt: skip
