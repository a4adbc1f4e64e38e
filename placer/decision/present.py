"""The profile that this machine is priced with: its calibration, or an estimate where that does not hold."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Hashable

import torch

from placer import profile as profiles
from placer.errors import PlacerWarning, ProfileError
from placer.pricing import estimated_profile
from placer.profile import Profile
from placer.workload import strict

#: Set to anything but 0, this variable silences the notice that an answer is an estimate.
QUIET = "PLACER_QUIET"

#: The last estimate that took the place of a calibration (None: there is none), with what it was made for.
_estimate: tuple[Hashable, Profile] | None = None


def present_profile() -> Profile:
    """This machine's calibration if it holds, else an estimate: the same object as long as nothing changes.

    Raises ProfileError where no estimate can be made. Under PLACER_STRICT=1 there is none: raises ProfileMissing,
    ProfileStale or what else is wrong with the calibration.
    """
    global _estimate
    own, wrong = None, ""
    try:
        own = profiles.load_cached(None)
        profiles.check_fresh(own)
    except ProfileError as error:
        if strict():
            raise
        wrong = str(error)  # the error itself would keep what was read of the file
    if own is not None and not wrong:
        return own
    made_for = (None if own is None else own.created, wrong, torch.get_num_threads(), os.environ.get("PLACER_HOME"))
    if _estimate is None or _estimate[0] != made_for or profiles.changed_fields(_estimate[1]):
        _estimate = made_for, estimated_profile(own, wrong, torch.get_num_threads())
    return _estimate[1]


def say_estimated(profile: Profile) -> None:
    """One PlacerWarning in a process where answers rest on an estimate, unless PLACER_QUIET is set."""
    if profile.estimated and os.environ.get(QUIET, "0") in ("", "0"):
        _say(*profile.warnings)


@functools.cache
def _say(*what: str) -> None:
    warnings.warn(PlacerWarning(f"{'; '.join(what)} ({QUIET}=1 silences this)"), stacklevel=4)
