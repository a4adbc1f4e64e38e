"""What ``explain`` was asked to compare: devices, and the profiles that price them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from placer import profile as profiles
from placer.decision.comparison import Comparison, compare
from placer.decision.convention import reachable
from placer.decision.objective import TIME, Objective
from placer.decision.present import present_profile
from placer.decision.residence import home
from placer.errors import ProfileError
from placer.pricing import named_profile
from placer.profile import Profile
from placer.workload import Workload, check_available

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
