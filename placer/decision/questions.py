"""What is asked, checked: between what to choose and by what, and the profiles that price it."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn

from placer import machine
from placer import profile as profiles
from placer.decision import ranks
from placer.decision.candidates import Candidates, gather, home, movable_devices
from placer.decision.objective import TIME, Objective, check_known, objective_of
from placer.errors import PlacerWarning, ProfileError
from placer.pricing import estimated_profile, named_profile
from placer.profile import Profile
from placer.workload import MEASURE, THREADS, check_available, check_choice, check_devices, strict

#: What names a profile.
Source = Profile | str | PathLike[str]
#: Set to anything but 0, this variable silences the notice that an answer is an estimate.
QUIET = "PLACER_QUIET"

#: The last estimate that took the place of a calibration (None: there is none), with what it was made for.
_estimate: tuple[Hashable, Profile] | None = None


@dataclass(frozen=True)
class Question:
    """Between what to choose, and by what.

    ``profile`` prices this machine (``here``), or the one that is asked about. ``devices`` are the names to choose
    from (None: all there are). ``what_if`` adds its accelerator, and every profile ``beside`` all its devices.
    """

    profile: Profile
    here: bool = True
    devices: tuple[str, ...] | None = None
    threads: str = "keep"
    objective: Objective = TIME
    what_if: Profile | None = None
    beside: tuple[Profile, ...] = ()

    def candidates(self, modules: Sequence[nn.Module]) -> Candidates:
        """All that is compared for a model of these modules. Raises ProfileError."""
        names, notes = self.devices, tuple[str, ...]()
        if self.here:
            names, notes = movable_devices(modules, names)
        elif self.profile.created and (changed := profiles.changed_fields(self.profile)):
            notes = (f"the profile was measured on another machine or setup ({'; '.join(changed)})",)
        return gather(
            self.profile, names, here=self.here, home=home(modules), threads=self.threads, what_if=self.what_if,
            beside=self.beside, notes=notes,
        )  # fmt: skip


def current_profile(source: Source | None = None) -> Profile:
    """What prices this machine: the profile that ``source`` names; None: its calibration if it holds, else an estimate.

    The estimate is the same object as long as nothing changes. Raises ProfileError: of a ``source`` that is missing or
    stale, where no estimate can be made, and under PLACER_STRICT=1 whatever is wrong with the calibration.
    """
    global _estimate
    if source is not None:
        named = profiles.load_cached(source)
        profiles.check_fresh(named)
        return named
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


def warn_estimated(profile: Profile) -> None:
    """One PlacerWarning in a process where answers rest on an estimate, unless PLACER_QUIET is set."""
    if profile.estimated and os.environ.get(QUIET, "0") in ("", "0"):
        _warn(*profile.warnings)


@functools.cache
def _warn(*what: str) -> None:
    warnings.warn(PlacerWarning(f"{'; '.join(what)} ({QUIET}=1 silences this)"), stacklevel=4)


def check_choosing(
    devices: Any, threads: Any, measure: Any, source: Any, objective: Any, price: Any, watts: Any
) -> tuple[tuple[str, ...] | None, Objective]:
    """The arguments of ``choose`` that are not about the workload, checked: devices and objective.

    Raises ValueError or TypeError.
    """
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    check_choice("measure", measure, MEASURE)
    profiles.check_source(source)
    if names is not None:
        check_available(names)
    wanted = objective_of(objective, price, watts)
    known = names or ranks.own_devices()
    check_known(wanted, known or machine.available_devices())
    return known, wanted


def question(
    names: Sequence[str] | None = None, threads: str = "keep", profile: Source | Sequence[Source] | None = None,
    what_if: Source | None = None, objective: Objective = TIME,
) -> Question:  # fmt: skip
    """What the arguments of ``explain`` ask; profiles are read. Raises ValueError, TypeError or ProfileError."""
    given: list[Any] = list(profile) if isinstance(profile, (list, tuple)) and profile else [profile]
    own, *beside = given
    profiles.check_source(own)
    if own is None and names is not None:
        check_available(names)
    used = current_profile() if own is None else profile_named(own)
    host = used if "cpu" in used.devices() else None
    return Question(
        used, own is None, None if names is None else tuple(names), threads, objective,
        None if what_if is None else profile_named(what_if, host),
        tuple(profile_named(source, host) for source in beside),
    )  # fmt: skip


def profile_named(source: Source | None, host: Profile | None = None, *, samples: bool = False) -> Profile:
    """A profile by path or name, else of a GPU of the catalog, driven by the CPU of ``host`` (None: this machine's)."""

    def this_machine() -> Profile | None:
        try:
            return profiles.load_cached(None)
        except ProfileError:
            return None

    profiles.check_source(source)
    return named_profile(source, this_machine if host is None else lambda: host, samples=samples)
