"""Which devices are compared, and the prediction for each of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from placer import machine
from placer import profile as profiles
from placer.decision import threads as thread_counts
from placer.decision.threads import ThreadOption
from placer.errors import ProfileError
from placer.pricing import Prediction, predict
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Workload

#: What a GPU's name begins with that its reader does not need.
_MAKER = re.compile(r"^(?:NVIDIA|AMD|Intel|Apple)(?:\(R\))? (?:GeForce )?")


class Prices(NamedTuple):
    """A prediction per device, and the numbers of CPU threads that were compared (none unless that was asked for)."""

    predictions: dict[str, Prediction]
    tried: tuple[ThreadOption, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared: devices of a profile, and those of other machines beside them.

    ``what_if`` adds its accelerator, ``beside`` are profiles of which every device is added. ``notes`` tell a reader
    why it is these.
    """

    profile: Profile
    devices: tuple[str, ...]
    threads: str = "keep"
    what_if: Profile | None = None
    beside: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()

    def price(self, trace: Trace, workload: Workload) -> Prices:
        """A prediction per device (see ``predict_all``). Raises ProfileError."""
        predictions, tried = predict_all(trace, workload, self.profile, self.devices, self.threads)
        if self.what_if is not None:
            predictions.update(_elsewhere(trace, workload, self.what_if, _accelerator(self.what_if)))
        for other in self.beside:
            predictions.update(_elsewhere(trace, workload, other, *other.devices()))
        return Prices(predictions, tried)


def compare(
    profile: Profile,
    *,
    devices: Sequence[str] | None,
    threads: str = "keep",
    what_if: Profile | None = None,
    beside: tuple[Profile, ...] = (),
    here: bool = True,
    notes: tuple[str, ...] = (),
) -> Comparison:
    """The comparison that was asked for. Raises ProfileError for a device that was never calibrated."""
    return Comparison(profile, candidates(devices, profile, here=here), threads, what_if, beside, notes)


def candidates(devices: Sequence[str] | None, profile: Profile, *, here: bool) -> tuple[str, ...]:
    """The devices to compare: those asked for, else all that are calibrated (``here``: and on this machine).

    Raises ProfileError when this machine's default accelerator was never calibrated: leaving it out silently would turn
    "not measured" into "not worth it".
    """
    calibrated = profile.devices()
    if devices is not None:
        missing = [name for name in devices if name not in calibrated]
        if missing:
            raise _not_calibrated(missing[0], calibrated)
        return tuple(devices)
    if not here:
        return calibrated
    available = machine.available_devices()
    default = available[:2]
    missing = [name for name in default if name not in calibrated]
    if missing:
        raise _not_calibrated(missing[0], calibrated)
    return tuple(name for name in available if name in calibrated)


def predict_all(
    trace: Trace, workload: Workload, profile: Profile, devices: Sequence[str], threads: str
) -> Prices:
    """A prediction per device, the CPU's with the number of threads it will run with; and the numbers compared.

    With ``threads="tune"`` these are the calibrated ones and the one the process has, else none.
    """
    here = profile.fingerprint.get("cpu") == machine.cpu_model()
    now = torch.get_num_threads() if here else profiles.default_threads(profile)
    found = predict(trace, profile, devices=devices, threads=now, data=workload.data, steps=workload.steps)
    if "cpu" not in found:
        return Prices(found, ())
    if here:
        # Priced at the nearest calibrated count, but this is the one it would run with.
        found["cpu"] = dataclasses.replace(found["cpu"], threads=torch.get_num_threads())
    if threads != "tune":
        return Prices(found, ())
    current = found["cpu"].threads
    tried = {current: found["cpu"]}
    for count in profile.threads("cpu"):
        if count not in tried:
            other = predict(trace, profile, devices=("cpu",), threads=count, data=workload.data, steps=workload.steps)
            tried[count] = other["cpu"]
    best = thread_counts.best_count({count: p.step_seconds for count, p in tried.items()}, current)
    found["cpu"] = tried[best]
    return Prices(found, thread_counts.options(tried, current))


def _accelerator(profile: Profile) -> str:
    """The first accelerator of a profile."""
    accelerator = next((name for name in profile.devices() if name != "cpu"), None)
    if accelerator is None:
        raise ProfileError(f"profile {profile.name!r} has no accelerator (calibrated: {', '.join(profile.devices())})")
    return accelerator


def _elsewhere(trace: Trace, workload: Workload, profile: Profile, *devices: str) -> dict[str, Prediction]:
    """Devices of another machine's profile, named ``cuda@that-profile``; of the catalog's GPUs, ``cuda@Tesla T4``."""
    count = profiles.default_threads(profile)
    found = predict(trace, profile, devices=devices, threads=count, data=workload.data, steps=workload.steps)
    named: dict[str, Prediction] = {}
    for device, prediction in found.items():
        total = profiles.memory_of(profile, device)
        fit = prediction.priced.fit
        gpu = fit.gpu if fit is not None and prediction.provenance != "calibrated" else ""
        name = f"{device}@{_MAKER.sub('', gpu) or Path(profile.name).stem or 'profile'}"
        fits = total is None or prediction.peak_memory_bytes <= total
        named[name] = dataclasses.replace(prediction, device=name, fits=fits)
    return named


def _not_calibrated(device: str, calibrated: Sequence[str]) -> ProfileError:
    known = ", ".join(calibrated) or "none"
    return ProfileError(f"{device} is not calibrated (calibrated: {known}); run: placer calibrate")
