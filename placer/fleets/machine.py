"""A machine that work could run on, or many of one kind: what is known of it, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from placer.decision import present_profile, profile_named
from placer.lazy import cached_property
from placer.pricing import gpu_profile
from placer.profile import Profile


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine, or ``count`` of them that are alike.

    Args:
        name: what to call it: a node, an instance type, a GPU.
        profile: of its CPU, and of the accelerators that were calibrated on it.
        gpu: a GPU of the catalog that is in it, where the profile has no accelerator; "" for none.
        devices: compare these only (``("cuda",)``); None: all it has.
        price: dollars per hour of the whole machine; None: not known.
        count: how many there are.
        note: what a reader should know of it.
        priced: the day of the catalog that the price is from; "" for one that was given.

    Raises:
        ValueError: a price or a count that is not above 0.
        UnknownGPU: the catalog has no such GPU.
    """

    name: str
    profile: Profile
    gpu: str = ""
    devices: tuple[str, ...] | None = None
    price: float | None = None
    count: int = 1
    note: str = ""
    priced: str = ""

    def __post_init__(self) -> None:
        if self.price is not None and not 0.0 < self.price < math.inf:
            raise ValueError(f"the price of {self.name} must be dollars per hour above 0, not {self.price!r}")
        if self.count < 1:
            raise ValueError(f"the count of {self.name} must be at least 1, not {self.count!r}")
        if self.gpu:
            _ = self.accelerated  # an unknown GPU is told now

    @property
    def kind(self) -> Hashable:
        """Equal for machines that are priced alike."""
        return id(self.profile), self.gpu, self.devices

    @cached_property
    def accelerated(self) -> Profile:
        """The profile of its accelerators: its own, or that of its GPU beside its CPU."""
        return gpu_profile(self.gpu, self.profile) if self.gpu else self.profile

    @property
    def sources(self) -> tuple[tuple[str, Profile], ...]:
        """Its devices, each with the profile that prices it."""
        found = [(name, self.profile) for name in self.profile.devices() if name == "cpu" or not self.gpu]
        if self.gpu:
            found += [(name, self.accelerated) for name in self.accelerated.devices()]
        return tuple((name, profile) for name, profile in found if self.devices is None or name in self.devices)


def machine_named(text: str, cpu: Profile | None = None, price: float | None = None) -> Machine:
    """A machine by the path or name of its profile; else a GPU by a name of the catalog, beside the CPU of ``cpu``.

    ``cpu`` None is this machine's. Raises ProfileError, UnknownGPU where nothing is called so.
    """
    beside = cpu or present_profile()
    found = profile_named(text, beside)
    gpu = next((fit.gpu for fit in found.fits if fit.gpu and not fit.families), "")
    if not gpu or "cpu" in found.devices():
        return Machine(text, found, price=price, note=_note(found))
    return gpu_beside(gpu, beside, price)


def gpu_beside(gpu: str, cpu: Profile, price: float | None = None) -> Machine:
    """A GPU of the catalog, driven by that CPU, which itself is not compared. Raises UnknownGPU."""
    return Machine(gpu, cpu, gpu=gpu, devices=gpu_profile(gpu, cpu).devices(), price=price)


def _note(profile: Profile) -> str:
    return f"calibrated {profile.created[:10]}" if profile.created else "; ".join(profile.warnings)
