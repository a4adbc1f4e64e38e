"""The profile that prices: this machine's own, an estimate in its place, or one that is named."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Hashable
from os import PathLike

import torch

from placer.errors import PlacerWarning, ProfileError
from placer.pricing import check_current, estimated_profile, named_profile
from placer.profile import Profile, changed_fields, check_fresh, check_source, load_cached
from placer.workload import strict

#: What names a profile.
Source = Profile | str | PathLike[str]
#: Set to anything but 0, this variable silences the notice that an answer is an estimate.
QUIET = "PLACER_QUIET"

#: The last estimate that took the place of a calibration (None: there is none), with what it was made for.
_estimate: tuple[Hashable, Profile] | None = None


def current_profile(source: Source | None = None) -> Profile:
    """What prices this machine: the profile that ``source`` names; None: its calibration if it holds, else an estimate.

    The estimate is the same object as long as nothing changes. Raises ProfileError: of a ``source`` that is missing or
    stale, where no estimate can be made, and under PLACER_STRICT=1 whatever is wrong with the calibration.
    """
    global _estimate
    calibration, wrong = None, ""
    try:
        loaded = load_cached(source)
        check_current(loaded)
        calibration = loaded
        check_fresh(calibration)
        return calibration
    except ProfileError as error:
        if source is not None or strict():
            raise
        wrong = str(error)  # the error itself would keep what was read of the file
    created = None if calibration is None else calibration.created
    made_for = created, wrong, torch.get_num_threads(), os.environ.get("PLACER_HOME")
    if _estimate is None or _estimate[0] != made_for or changed_fields(_estimate[1]):
        _estimate = made_for, estimated_profile(calibration, wrong, torch.get_num_threads())
    return _estimate[1]


def warn_estimated(profile: Profile, off: str) -> None:
    """One PlacerWarning in a process where answers rest on an estimate, unless PLACER_QUIET is set.

    ``off`` says how far such answers are off.
    """
    if profile.estimated and os.environ.get(QUIET, "0") in ("", "0"):
        _warn(*profile.warnings, *filter(None, [off]))


@functools.cache
def _warn(*what: str) -> None:
    warnings.warn(PlacerWarning(f"{'; '.join(what)} ({QUIET}=1 silences this)"), stacklevel=4)


def profile_named(source: Source | None, host: Profile | None = None) -> Profile:
    """A profile by path or name, else of a GPU of the catalog, driven by the CPU of ``host`` (None: this machine's)."""

    def driver() -> Profile | None:
        try:
            return load_cached(None) if host is None else host
        except ProfileError:
            return None

    check_source(source)
    return named_profile(source, driver)
