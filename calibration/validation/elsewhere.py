"""A step on a machine that is not here, priced so that a table does not depend on this one."""

from __future__ import annotations

from placer.pricing import Prediction, Residence, predict
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Data


def priced_elsewhere(traced: Trace, profile: Profile, device: str, threads: int, data: Data) -> Prediction:
    """The prediction for a device of another machine's profile. Raises ProfileError."""
    found = predict(traced, profile, devices=(device,), threads=threads, data=data, residence=Residence(here=False))
    return found[device]
