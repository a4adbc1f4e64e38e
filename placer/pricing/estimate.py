"""The profile of a machine that was not calibrated here: this one, a CPU of the catalog, or whatever is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from placer import machine
from placer.errors import ProfileMissing, UnknownCPU, UnknownGPU
from placer.pricing.cpu_devices import core_of, cpu_from_sheet, cpu_from_speeds, nearest_profile
from placer.pricing.gpu.catalog_profile import gpu_profile
from placer.pricing.speeds import cpu_speeds
from placer.profile import (
    SUFFIXES,
    CpuSheet,
    Device,
    Profile,
    cpu_kinds,
    kind_of,
    load_cached,
    named_cores,
    reported_gpu,
    stale_fields,
    uncalibrated,
)


def estimated_profile(calibration: Profile | None, why: str, threads: int) -> Profile:
    """What is known of this machine, run with ``threads`` CPU threads, where its calibration says nothing of it.

    What holds of a calibration that does not hold for the whole machine any more is kept. ``why`` says what is wrong
    with it, as an error that ends in what to run. Accelerators that the catalog does not know are left out. Creates no
    device context. Raises ProfileError where a shipped profile cannot be read.
    """
    facts = machine.fingerprint()
    notes = [f"an estimate from published measurements, as {why}"]
    cpu = _calibrated_cpu(calibration, facts)
    if cpu is None:
        nearest = nearest_profile(facts)
        speeds = cpu_speeds(facts, nearest, threads)
        cpu = replace(nearest, fits=(cpu_from_speeds(nearest, kind_of(facts), speeds, threads),))
        notes += [speeds.note] * bool(speeds.note)
    fits = list(cpu.fits)
    for accelerator in facts["accelerators"]:
        fit = _accelerator(accelerator, calibration, cpu, facts)
        fits += [] if fit is None else [fit]
    return uncalibrated(fits, facts, "estimate", notes, unusable={} if calibration is None else calibration.unusable)


@cache
def cpu_profile(sheet: CpuSheet, cores: float) -> Profile:
    """What is known of a CPU of the catalog, with so many of its cores: see ``cpu_devices.cpu_from_sheet``."""
    fit = cpu_from_sheet(sheet, cores)
    torch_version = core_of(cpu_kinds()[sheet.kind]).fingerprint["torch"]
    facts = {
        "cpu": sheet.name, "cores": fit.threads, "threads": fit.threads, "accelerators": [], "torch": torch_version,
    }  # fmt: skip
    note = f"{sheet.name}: a calibrated core of its kind, scaled to its clock, vectors and memory"
    return uncalibrated([fit], facts, sheet.name, [note])


def _calibrated_cpu(calibration: Profile | None, facts: Mapping[str, Any]) -> Profile | None:
    """The CPU of a calibration, if nothing that it depends on has changed."""
    if calibration is None or stale_fields(calibration, {**facts, "accelerators": ()}):
        return None
    if "cpu" not in calibration.devices():
        return None
    return replace(calibration, fits=tuple(fit for fit in calibration.fits if fit.device == "cpu"))


def _accelerator(
    accelerator: Mapping[str, Any], calibration: Profile | None, cpu: Profile, facts: Mapping[str, Any]
) -> Device | None:
    """The fit of an accelerator: as calibrated, where that holds, or of the catalog; None where nothing is known."""
    device = str(accelerator["device"])
    alone = {**facts, "accelerators": [accelerator]}
    if calibration is not None and device in calibration.devices() and not stale_fields(calibration, alone):
        return calibration.fit(device)
    try:
        of_catalog = gpu_profile(reported_gpu(accelerator).name, cpu)
    except UnknownGPU:
        return None
    return replace(of_catalog.fits[0], device=device, estimated=True)


def named_profile(source: Profile | str | os.PathLike[str] | None, cpu: Callable[[], Profile | None]) -> Profile:
    """A profile by its path or name; else of the GPU (see ``gpu_profile``) or CPU that a catalog finds by that name.

    ``cpu`` gives the profile of the GPU's host. Raises ProfileError; UnknownGPU
    lists the closest names where none is found.
    """
    try:
        return load_cached(source)
    except (ProfileMissing, ValueError) as missing:  # a GPU's name need not be one that a profile could have
        if not isinstance(source, str) or source.endswith(SUFFIXES):
            raise
        try:
            return gpu_profile(source, cpu())
        except UnknownGPU as unknown:
            with suppress(UnknownCPU):
                return cpu_profile(*named_cores(source))
            if os.sep in source:
                raise missing from None
            what = (
                str(missing)
                if isinstance(missing, ProfileMissing)
                else (f"no profile is called {source!r}; list them with: placer profile list")
            )
            raise UnknownGPU(f"{what}; {unknown}") from None
