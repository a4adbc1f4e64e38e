"""Why an attempt to trace a step did not succeed, where another one may."""

from __future__ import annotations

from placer.errors import TraceError


class Unfollowed(TraceError):
    """Tensors without values cannot follow the step; a real run may."""


class FailedOnMeta(Unfollowed):
    """The step raised something on tensors without values."""


class ValueUnknown(Unfollowed):
    """The step reads a tensor's value, which only a real run knows."""


class DifferentiatedTwice(TraceError):
    """The step differentiates through a fused op twice, as PyTorch can through the ops that it stands for."""


class NothingTrains(TraceError):
    """The loss depends on no parameter that requires a gradient."""
