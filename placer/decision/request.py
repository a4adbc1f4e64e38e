"""A checked request of ``choose``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

from placer import machine
from placer import profile as profiles
from placer.decision import convention, present, ranks, residence
from placer.decision.comparison import Comparison, compare
from placer.decision.objective import Objective, check_known, objective_of
from placer.profile import Profile
from placer.workload import MEASURE, THREADS, Workload, check_available, check_choice, check_devices


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
            return present.present_profile()
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
            self.profile, devices=names, threads=self.threads, home=residence.home(self.workload), notes=notes,
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
