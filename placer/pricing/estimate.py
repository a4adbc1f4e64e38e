"""The profile of a machine that was not calibrated: what others measured, brought to its speed.

The CPU's numbers are those of the shipped profile of the nearest class, scaled by a speed probe of half a second. An
accelerator's are those of the catalog, found by the name that its driver gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placer import machine
from placer import profile as profiles
from placer.errors import UnknownGPU
from placer.pricing.other_cpu import on_other_cpu
from placer.pricing.speeds import cpu_speeds
from placer.profile import SCHEMA, DeviceFit, Profile


def estimated_profile(own: Profile | None, why: str, threads: int) -> Profile:
    """What is known of this machine, run with ``threads`` CPU threads, where its calibration says nothing of it.

    ``own`` is a calibration that does not hold for the whole machine any more; what holds of it is kept. ``why`` says
    what is wrong with the calibration, as an error that ends in what to run. Accelerators that the catalog does not
    know are left out. Creates no device context. Raises ProfileError where a shipped profile cannot be read.
    """
    facts = machine.fingerprint()
    cpu = _calibrated_cpu(own, facts)
    if cpu is None:
        nearest = nearest_profile(facts)
        cpu = on_other_cpu(nearest, cpu_speeds(facts, nearest, threads), threads=threads)
    others = (_accelerator(accelerator, own, cpu, facts) for accelerator in facts["accelerators"])
    return Profile(
        schema=SCHEMA, created="", fingerprint=facts, samples=(), fits=(*cpu.fits, *(fit for fit in others if fit)),
        noise={}, warnings=(f"an estimate from published measurements, as {why}",),
        complete=True, seconds=0.0, name="estimate", unusable={} if own is None else own.unusable,
    )  # fmt: skip


def nearest_profile(facts: Mapping[str, Any], *, own_class: bool = True) -> Profile:
    """The shipped profile of the machine most like that of a fingerprint; a quiet machine's, where two are equal.

    Without ``own_class`` profiles of the machine's own class are left out: to see how good an estimate is elsewhere.
    Raises ProfileError.
    """
    found = {name: profiles.shipped_facts(name) for name in profiles.shipped()}
    unlike = {name: profiles.dissimilarity(fingerprint, facts) for name, (fingerprint, _) in found.items()}
    allowed = [name for name in found if own_class or unlike[name] >= profiles.SAME_CLASS_WITHIN]
    nearest = min(allowed, key=lambda name: (unlike[name], found[name][1]))
    return profiles.load_cached(profiles.shipped_folder() / f"{nearest}.json")  # a user's profile may have its name


def _calibrated_cpu(own: Profile | None, facts: Mapping[str, Any]) -> Profile | None:
    """The CPU of ``own``, if nothing that it depends on has changed."""
    if own is None or profiles.stale_fields(own, {**facts, "accelerators": ()}):
        return None
    return replace(own, fits=tuple(fit for fit in own.fits if fit.device == "cpu")) if "cpu" in own.devices() else None


def _accelerator(
    accelerator: Mapping[str, Any], own: Profile | None, cpu: Profile, facts: Mapping[str, Any]
) -> DeviceFit | None:
    """The fit of an accelerator: as calibrated, where that holds, or of the catalog; None where nothing is known."""
    device = str(accelerator["device"])
    alone = {**facts, "accelerators": [accelerator]}
    if own is not None and device in own.devices() and not profiles.stale_fields(own, alone):
        return own.fit(device)
    # Only where there is an accelerator: the catalog's model takes time to load.
    from placer.pricing.gpu.catalog_profile import gpu_profile

    try:
        found = gpu_profile(str(accelerator["name"]), cpu)
    except UnknownGPU:
        return None
    return replace(found.fits[0], device=device, estimated=True)
