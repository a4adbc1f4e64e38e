"""Errors for steps that cannot be traced on tensors without values; the tracer then tries a real run."""

from __future__ import annotations

from placer.errors import TraceError


class Unfollowed(TraceError):
    """Tensors without values cannot follow the step; a real run may. Never leaves the tracer."""


class ValueUnknown(Unfollowed):
    """The step reads a tensor's value, which only a real run knows."""
