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

#: The profile that took the place of each calibration (None: there is none). The calibration is kept alive, and so is
#: its identity, which is part of the key.
_answers: dict[Hashable, tuple[Profile | None, Profile]] = {}


def present_profile() -> Profile:
    """This machine's calibration if it holds, else an estimate: the same object as long as nothing changes.

    Raises ProfileError where no estimate can be made. Under PLACER_STRICT=1 there is none: raises ProfileMissing,
    ProfileStale or what else is wrong with the calibration.
    """
    own, wrong = None, ""
    try:
        own = profiles.load_cached(None)
        profiles.check_fresh(own)
    except ProfileError as error:
        if strict():
            raise
        wrong = str(error)  # the error itself would keep what was read of the file
    key = _key(own)
    if own is not None and not wrong:
        _answers[key] = own, own
        return own
    known = _answers.get(key)
    if known is None or known[1] is own or profiles.changed_fields(known[1]):
        made = estimated_profile(own, wrong, torch.get_num_threads())
        known = _answers[key] = own, made
    return known[1]


def profile_as_before() -> Profile | None:
    """What ``present_profile`` returned last for the calibration of now, without a look at the machine; None: nothing.

    Under PLACER_STRICT=1 that is never an estimate.
    """
    try:
        own: Profile | None = profiles.load_cached(None)
    except ProfileError:
        own = None
    _, found = _answers.get(_key(own), (None, None))
    return None if found is not own and strict() else found


def say_estimated(profile: Profile) -> None:
    """One PlacerWarning in a process where answers rest on an estimate, unless PLACER_QUIET is set."""
    if profile.estimated and os.environ.get(QUIET, "0") in ("", "0"):
        _say(*profile.warnings)


@functools.cache
def _say(*what: str) -> None:
    warnings.warn(PlacerWarning(f"{'; '.join(what)} ({QUIET}=1 silences this)"), stacklevel=4)


def _key(own: Profile | None) -> Hashable:
    return id(own), torch.get_num_threads(), os.environ.get("PLACER_HOME")
