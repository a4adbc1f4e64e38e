"""What ``choose`` and ``explain`` were asked, checked: the profile that prices this machine, and others beside it."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch

from placer import machine
from placer import profile as profiles
from placer.decision import convention, ranks
from placer.decision.comparison import Comparison, compare, home
from placer.decision.convention import reachable
from placer.decision.objective import TIME, Objective, check_known, objective_of
from placer.errors import PlacerWarning, ProfileError
from placer.lazy import cached_property
from placer.pricing import estimated_profile, named_profile
from placer.profile import Profile
from placer.workload import MEASURE, THREADS, Workload, check_available, check_choice, check_devices, strict

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


@dataclass(frozen=True)
class Request:
    """The checked arguments of ``choose``, but for those about the move.

    ``devices`` are those to choose from; None: all of this machine. ``source`` is what names the profile.
    """

    workload: Workload
    devices: tuple[str, ...] | None
    threads: str
    measure: str
    source: Profile | str | PathLike[str] | None
    objective: Objective

    @cached_property
    def profile(self) -> Profile:
        """Read once, so that the whole request is answered from one. Raises ProfileError."""
        if self.source is None:
            return present_profile()
        found = profiles.load_cached(self.source)
        profiles.check_fresh(found)
        return found

    @property
    def profile_read(self) -> Profile | None:
        """The profile if it could be read so far. Reads nothing."""
        return self.__dict__.get("profile")

    def comparison(self) -> Comparison:
        """The devices to compare. Raises ProfileError, ProfileStale for another machine's ``source``."""
        names, notes = convention.reachable(self.workload, self.devices)
        return compare(
            self.profile, devices=names, threads=self.threads, home=home(self.workload), notes=notes,
            objective=self.objective,
        )  # fmt: skip


def check(
    workload: Workload, devices: Any, threads: Any, measure: Any, source: Any, objective: Any = "time",
    price: Any = None, watts: Any = None,
) -> Request:  # fmt: skip
    """The arguments that are not about the workload, checked. Raises ValueError or TypeError."""
    names = check_devices(devices)
    check_choice("threads", threads, THREADS)
    check_choice("measure", measure, MEASURE)
    profiles.check_source(source)
    if measure != "never" and workload.is_step_function:
        raise ValueError("measure needs an nn.Module: a step function cannot be timed without changing what it trains")
    if names is not None:
        check_available(names)
    wanted = objective_of(objective, price, watts)
    candidates = names or ranks.own_devices()
    check_known(wanted, candidates or machine.available_devices())
    return Request(workload, candidates, threads, measure, source, wanted)


#: What names a profile.
Source = Profile | str | PathLike[str]


@dataclass(frozen=True)
class Asked:
    """The profiles that were named, read once for all workloads that are priced with them.

    ``own`` tells that ``used`` is this machine's, as no other was asked for.
    """

    used: Profile
    own: bool
    names: tuple[str, ...] | None = None
    threads: str = "keep"
    what_if: Profile | None = None
    beside: tuple[Profile, ...] = ()
    objective: Objective = TIME

    def comparison(self, workload: Workload) -> Comparison:
        """The devices to compare for a workload. Raises ProfileError."""
        names, notes = self.names, tuple[str, ...]()
        if self.own:
            names, notes = reachable(workload, names)
        elif self.used.created and (changed := profiles.changed_fields(self.used)):
            notes = (f"the profile was measured on another machine or setup ({'; '.join(changed)})",)
        return compare(
            self.used, devices=names, threads=self.threads, what_if=self.what_if, beside=self.beside, here=self.own,
            home=home(workload), notes=notes, objective=self.objective,
        )  # fmt: skip


def asked(
    names: Sequence[str] | None, threads: str, profile: Source | Sequence[Source] | None, what_if: Source | None,
    objective: Objective = TIME,
) -> Asked:  # fmt: skip
    """Read the profiles that the arguments of ``explain`` name. Raises ValueError, TypeError or ProfileError."""
    given: list[Any] = list(profile) if isinstance(profile, (list, tuple)) and profile else [profile]
    own, *beside = given
    profiles.check_source(own)
    if own is None and names is not None:
        check_available(names)
    used = present_profile() if own is None else profile_named(own)
    host = used if "cpu" in used.devices() else None
    return Asked(
        used=used,
        own=own is None,
        names=None if names is None else tuple(names),
        threads=threads,
        what_if=None if what_if is None else profile_named(what_if, host),
        beside=tuple(profile_named(source, host) for source in beside),
        objective=objective,
    )


def profile_named(source: Source | None, host: Profile | None = None, *, samples: bool = False) -> Profile:
    """A profile by path or name, else of a GPU of the catalog, driven by the CPU of ``host`` (None: this machine's)."""

    def this_machine() -> Profile | None:
        try:
            return profiles.load_cached(None)
        except ProfileError:
            return None

    profiles.check_source(source)
    return named_profile(source, this_machine if host is None else lambda: host, samples=samples)
