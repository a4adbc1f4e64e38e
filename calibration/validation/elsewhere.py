"""A step on a machine that is not here, priced so that a table does not depend on this one."""

from __future__ import annotations

from placer.machine import LAST_THRESHOLD, HeapState
from placer.pricing import Prediction, Residence, predict
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Data

#: The heap of a process that has run for a while, whatever this one did before.
_HEAP = HeapState(LAST_THRESHOLD, 0)


def priced_elsewhere(traced: Trace, profile: Profile, device: str, threads: int, data: Data) -> Prediction:
    """The prediction for a device of another machine's profile. Raises ProfileError."""
    found = predict(
        traced, profile, devices=(device,), threads=threads, data=data, heap=_HEAP, residence=Residence(here=False)
    )
    return found[device]
