"""The machine profile: what calibration learnt about one machine, as plain numbers, and whether it still holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from placer import machine
from placer.errors import ProfileError, ProfileStale
from placer.profile.cores import Cores, alone, cores_at

#: The format, and the oldest that is still read. A reader refuses what it does not know, newer and older with different
#: errors. What is not read any more was never in a release.
SCHEMA = OLDEST_SCHEMA = 5
#: What ``Profile.noise`` calls the share of the cores' time that other programs had during the calibration, and the
#: share from which on it says little of the machine: what a system does of its own stays below 0.1, and one program
#: that computes all along gets 0.25 to 0.5 of two cores.
OTHERS, MUCH = "others_share", 0.2
#: Dissimilarity below which two machines are of the same class.
SAME_CLASS_WITHIN = 0.05
#: What makes another CPU, and how dissimilar. Vector instructions decide which kernels run, the vendor how fast caches
#: and memory are beside them. Older profiles do not tell CPUs of one name apart.
_CPU = {"cpu": 10.0, "cpu_instructions": 5.0, "cpu_version": 1.0}
_OTHER_VENDOR = 2.0
_VENDORS = ("amd", "intel", "apple", "arm", "neoverse", "ibm")


@dataclass(frozen=True)
class FamilyFit:
    """What one device's ops of a family take beyond physics and what is learnt of all devices.

    Attributes:
        numbers: what the family's network knows the device by; empty where prices of the device are published.
        offsets: what is added to log(seconds) of each op that was measured here, by its name; "" of the others.
        sigma: standard deviation of log(seconds) that a price of the family has because of this device.
        measured: samples that were taken on this very machine.
    """

    numbers: tuple[float, ...]
    offsets: Mapping[str, float]
    sigma: float
    measured: int

    def offset(self, labels: Sequence[str]) -> float:
        """What is added to log(seconds) of an op, by the names that it may be known by, closest first."""
        return next((self.offsets[label] for label in labels if label in self.offsets), self.offsets.get("", 0.0))

    def times(self, factor: float) -> FamilyFit:
        """The family where all its ops take so many times as long."""
        by = math.log(factor)
        return replace(self, offsets={name: offset + by for name, offset in {"": 0.0, **self.offsets}.items()})


@dataclass(frozen=True)
class Device:
    """What was fitted for one device at one number of CPU threads.

    ``rates`` are data-sheet numbers in FLOP/s, bytes/s and seconds (``"flops/float32"``, ``"bytes_per_second"``,
    ``"launch_seconds"``, ``"copy/h2d/pageable/bytes_per_second"``, ...); ``framework`` the coefficients of torch's own
    time; ``interval`` the constants of the 90 % interval. ``reference`` is the name of the shipped profile it built on.
    ``gpu`` is the catalog name of the GPU whose published knowledge prices the families that were not measured here;
    where none was, ``reference`` is the CPU whose calibration its host is priced by. ``estimated``: other machines'
    numbers stand in for those of this device, which was not calibrated; not stored. ``cores``: the families' numbers
    are those of one core, of which these share an op. In a profile such a fit has no families of its own: they are
    those of one thread (see ``Profile.fit``).
    """

    device: str
    threads: int
    rates: Mapping[str, float]
    families: Mapping[str, FamilyFit]
    framework: Mapping[str, float]
    interval: Mapping[str, float]
    reference: str = ""
    gpu: str = ""
    estimated: bool = False
    cores: Cores | None = None
    edition: int = 0


def on_cores(core: Device, measured: Sequence[Device], threads: int) -> Device:
    """The fit of a CPU at any number of ``threads``, more than one.

    ``core`` is the fit of one thread. Those ``measured``, in ascending order, are of several: they have ``cores`` and
    no families.
    """
    cores = {fit.threads: fit.cores for fit in measured if fit.cores is not None}
    of_all = cores_at(threads, {1: alone(core.rates), **cores})
    nearest = next((fit for fit in measured if fit.threads >= threads), measured[-1])
    faster = of_all.flops_per_second / nearest.rates["flops/float32"]
    flops = {name: rate * faster for name, rate in nearest.rates.items() if name.startswith("flops/")}
    return replace(
        nearest,
        threads=min(threads, nearest.threads),
        rates={**nearest.rates, **flops, "bytes_per_second": of_all.bytes_per_second},
        families=core.families,
        edition=core.edition,
        framework={name: of_all.pace * seconds for name, seconds in core.framework.items()},
        reference=core.reference,
        cores=replace(of_all, rates=core.rates),
    )


@dataclass(frozen=True)
class Profile:
    """A calibrated machine.

    ``created`` is ISO 8601 in UTC, ``fingerprint`` what ``machine.fingerprint()`` returned then, ``noise`` how quiet
    the machine was, ``warnings`` what a reader should know, ``seconds`` the time spent measuring. ``complete`` is False
    when calibration was interrupted, or whole families did not fit in its budget. ``unusable`` maps a device that torch
    listed and could not use to the reason. ``name`` says where the profile came from and is not stored.
    """

    schema: int
    created: str
    fingerprint: Mapping[str, Any]
    fits: tuple[Device, ...]
    noise: Mapping[str, float]
    warnings: tuple[str, ...]
    complete: bool
    seconds: float
    name: str = ""
    unusable: Mapping[str, str] = field(default_factory=dict)
    _on_cores: dict[int, Device] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        fits = ", ".join(
            f"{device} with {', '.join(map(str, self.threads(device)))} threads" for device in self.devices()
        )
        return f"Profile({self.fingerprint.get('cpu', 'unknown CPU')!r}, created={self.created!r}, fits={fits!r})"

    @property
    def estimated(self) -> bool:
        """Whether other machines' numbers stand in for those of a device."""
        return any(fit.estimated for fit in self.fits)

    @property
    def disturbed(self) -> bool:
        """Whether other programs had so much of the cores that the machine reads as slower than it is."""
        return self.noise.get(OTHERS, 0.0) >= MUCH

    @property
    def facts(self) -> dict[str, Any]:
        """What the numbers were measured on, as plain values."""
        names = ("cpu", "cores", "memory_bytes", "accelerators", "torch", "threads")
        machine_facts = {name: self.fingerprint[name] for name in names if name in self.fingerprint}
        return {**machine_facts, "calibrated": self.created, "profile": self.name}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know about the profile itself."""
        unfinished = () if self.complete else ("calibration did not finish; run: placer calibrate",)
        return (*unfinished, *self.warnings)

    def devices(self) -> tuple[str, ...]:
        """The calibrated devices, in the order they were fitted."""
        return tuple(dict.fromkeys(fit.device for fit in self.fits))

    def threads(self, device: str) -> tuple[int, ...]:
        """The numbers of CPU threads the device was calibrated with, ascending; empty if it was not."""
        device = machine.normal_device(device)
        return tuple(sorted(fit.threads for fit in self.fits if fit.device == device))

    def fit(self, device: str, threads: int | None = None) -> Device:
        """The fit of a device with so many CPU ``threads``; None: the default at calibration.

        Where cores share what one of them was measured to take, any number has a fit; else it is the one whose number
        is nearest, as a ratio. Raises ProfileError if the device was not calibrated.
        """
        wanted = machine.normal_device(device)
        fits = [fit for fit in self.fits if fit.device == wanted]
        if not fits:
            calibrated = ", ".join(self.devices()) or "none"
            raise ProfileError(
                f"device {device!r} is not calibrated in profile {self.name or 'in memory'} "
                f"(calibrated: {calibrated}); run: placer calibrate --device {wanted}"
            )
        if threads is None:
            threads = default_threads(self) or max(fit.threads for fit in fits)
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        core = next((fit for fit in fits if fit.threads == 1 and fit.device == "cpu"), None)
        several = sorted((fit for fit in fits if fit.cores and not fit.families), key=attrgetter("threads"))
        if core is not None and several and threads > 1:
            if threads not in self._on_cores:
                self._on_cores[threads] = on_cores(core, several, threads)
            return self._on_cores[threads]
        aim = math.log(threads)
        return min(fits, key=lambda fit: (abs(math.log(fit.threads) - aim), fit.threads))


def uncalibrated(
    fits: Sequence[Device],
    facts: Mapping[str, Any],
    name: str,
    notes: Sequence[str] = (),
    *,
    unusable: Mapping[str, str] | None = None,
) -> Profile:
    """The profile of a machine that was not calibrated, or no more: of devices that others measured.

    ``facts`` are its fingerprint, as far as they are known; ``notes`` what a reader should know.
    """
    return Profile(
        schema=SCHEMA,
        created="",
        fingerprint=facts,
        fits=tuple(fits),
        noise={},
        warnings=tuple(notes),
        complete=True,
        seconds=0.0,
        name=name,
        unusable=unusable or {},
    )


def stale_fields(profile: Profile, current: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed on the machine since calibration, readable: ``("torch: 2.11.0 -> 2.13.0",)``; empty: nothing.

    ``current`` is a ``machine.fingerprint()``.
    """
    return machine.differences(profile.fingerprint, current, profile.threads("cpu"))


def changed_fields(profile: Profile) -> tuple[str, ...]:
    """What makes this machine another one than the profile's, readable; empty: nothing."""
    return stale_fields(profile, machine.fingerprint())


def check_fresh(profile: Profile) -> None:
    """Raise ProfileStale, naming the fields, if the machine changed since calibration."""
    if changed := changed_fields(profile):
        raise ProfileStale(f"the machine changed since calibration ({'; '.join(changed)}); run: placer calibrate")


def memory_of(profile: Profile, device: str) -> int | None:
    """Bytes of memory that a device of the profile's machine has; None where that is not known."""
    if device == "cpu":
        return int(profile.fingerprint.get("memory_bytes", 0)) or None
    for facts in profile.fingerprint.get("accelerators", ()):
        if facts["device"] == device:
            return int(facts.get("memory_bytes", 0)) or None
    return None


def default_threads(profile: Profile) -> int | None:
    """The number of CPU threads that the profile's machine runs with by default; None where that is not known."""
    threads = profile.fingerprint.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def dissimilarity(there: Mapping[str, Any], here: Mapping[str, Any], device: str = "cpu") -> float:
    """How unlike two machines are by their fingerprints; 0.0 for the same processor, cores and version of torch."""
    if device != "cpu":
        return 0.0 if _accelerator(there, device) == _accelerator(here, device) else 1.0
    cores = abs(math.log(float(there.get("cores") or 1) / float(here.get("cores") or 1)))
    other_torch = 0.1 * (_release(there) != _release(here))
    vendor = _OTHER_VENDOR * (_vendor(there) != _vendor(here))
    return cores + other_torch + vendor + sum(weight * _differs(there, here, field) for field, weight in _CPU.items())


def _differs(there: Mapping[str, Any], here: Mapping[str, Any], field: str) -> bool:
    return field in there and field in here and there[field] != here[field]


def _vendor(fingerprint: Mapping[str, Any]) -> str:
    name = str(fingerprint.get("cpu")).lower()
    return next((vendor for vendor in _VENDORS if vendor in name), "")


def _release(fingerprint: Mapping[str, Any]) -> str:
    """Major and minor version of torch."""
    return ".".join(str(fingerprint.get("torch")).split(".")[:2])


def _accelerator(fingerprint: Mapping[str, Any], device: str) -> str | None:
    listed = fingerprint.get("accelerators", ())
    return next((str(facts.get("name")) for facts in listed if facts["device"] == device), None)
