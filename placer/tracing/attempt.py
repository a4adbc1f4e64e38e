"""Ways to trace a step: where one does not succeed, the reason says which one to try next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placer.errors import TraceError
from placer.tracing.child import Ended


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


@dataclass(frozen=True)
class Attempt:
    """``kind`` is the kind of device to trace for.

    ``real``: run the step on tensors with values, for the reason ``why``. ``floats``: on tensors without values, small
    floating point constants keep theirs. ``fused``: functions that are one kernel on real devices are one call.
    ``trains``: whether the step may train.
    """

    kind: str = "cpu"
    real: bool = False
    floats: bool = False
    fused: bool = True
    trains: bool = True
    why: str = ""

    def after(self, error: TraceError, may_infer: bool) -> Attempt | None:
        """The attempt that may succeed where this one raised ``error``; None where none does.

        ``may_infer``: nobody said that the step trains.
        """
        if isinstance(error, DifferentiatedTwice) and self.fused:
            return replace(self, fused=False)
        if isinstance(error, NothingTrains):
            return replace(self, trains=False) if self.trains and may_infer else None
        if self.real:
            return None
        if isinstance(error, ValueUnknown) and not self.floats:
            # It may be a constant, such as a solver's points in time, or drawn to drop layers: let those keep values.
            return replace(self, floats=True, why=str(error))
        if isinstance(error, (Unfollowed, Ended)):
            said = f"on tensors without values {error}" if isinstance(error, FailedOnMeta) else str(error)
            return replace(self, real=True, why=self.why or said)
        return None
