"""A model on two devices: the prediction where some submodules stay on the CPU, and advice where that pays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from placer import profile as profiles
from placer.errors import ProfileError
from placer.pricing import SPLIT_SUFFIX, Prediction, Residence, predict_split
from placer.profile import Profile
from placer.tracing import Trace
from placer.workload import Workload, cpu_part


class Accelerator(NamedTuple):
    """An accelerator that is compared: what it is called, its name in ``profile``, and where the model is."""

    name: str
    device: str
    profile: Profile
    residence: Residence


def split_predictions(
    trace: Trace, workload: Workload, accelerators: Iterable[Accelerator], host: Profile, threads: int | None,
    host_residence: Residence,
) -> dict[str, Prediction]:  # fmt: skip
    """The step with ``workload.on_cpu`` on the CPU of ``host``, once for each accelerator: ``cuda+cpu``.

    A profile of another machine that knows its own CPU takes that. Raises ProfileError where there is no accelerator,
    or no CPU.
    """
    part = cpu_part(workload)
    found: dict[str, Prediction] = {}
    for name, device, profile, residence in accelerators:
        own = profile if profile is not host and "cpu" in profile.devices() else host
        if "cpu" not in own.devices():
            raise ProfileError(f"on_cpu needs the numbers of a CPU, and profile {own.name!r} has none")
        priced = predict_split(
            trace, part, device, profile, own, data=workload.data, steps=workload.steps, residence=residence,
            threads=threads if own is host else profiles.default_threads(own), loading=workload.loading,
            host_residence=host_residence if own is host else Residence(here=False),
        )  # fmt: skip
        found[name + SPLIT_SUFFIX] = dataclasses.replace(priced, device=name + SPLIT_SUFFIX)
    if not found:
        raise ProfileError("on_cpu leaves the rest of the model to an accelerator, and none is compared; name a GPU "
                           'with what_if="T4" (--what-if T4)')  # fmt: skip
    return found


def is_split(device: str) -> bool:
    """Whether a device's name stands for two: an accelerator and the CPU."""
    return device.endswith(SPLIT_SUFFIX)


def accelerators_of(predictions: Mapping[str, Prediction], profile: Profile, residence: Residence) -> list[Accelerator]:
    """The accelerators among devices that were priced with one profile."""
    return [Accelerator(name, p.priced.device, profile, residence)
            for name, p in predictions.items() if p.priced.device != "cpu"]  # fmt: skip
