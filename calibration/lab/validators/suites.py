"""``placer validate`` of a checkout: all suites, the reference systems, and estimates without a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from placer import machine
from placer.calibration.lab.op_record import REGION
from placer.calibration.lab.suite import accelerator_entries, entries
from placer.calibration.lab.validators.reference import reference_tables, what_if_tables
from placer.calibration.suite import Entry
from placer.calibration.validation import record, recorded
from placer.calibration.validation.record import Cell
from placer.calibration.validation.run import (
    QUICK_SECONDS_PER_CELL,
    SECONDS_PER_CELL,
    loaded,
    measure,
    profile_for,
    profile_of_record,
    profile_title,
    replay,
    say,
    selected,
    share_target,
    shown,
)
from placer.errors import CalibrationError
from placer.machine import MeasuredSpeeds
from placer.pricing import cpu_from_speeds, nearest_profile
from placer.pricing.speeds import beside, small_step_seconds
from placer.profile import Device, Profile, find_gpu, kind_of, uncalibrated


def validate_suites(
    suite: str | None = None,
    against: str | Path | None = None,
    threads: Sequence[int] | None = None,
    estimate: bool = False,
    what_if: Sequence[str] = (),
    profile: Profile | str | Path | None = None,
    output: Path | None = None,
    share: str | None = None,
) -> int:
    """Measure a suite (or, with ``against``, replay a record) and print the tables; returns the exit code.

    As ``placer.calibration.validation.run.main`` does it of the quick suite. ``suite`` None is ``quick`` when
    measuring, and every cell of the record when replaying. With ``estimate`` the CPU's predictions are those of before
    a calibration, from another class of CPU: of the machine of ``profile``, else of the record's, else of this one.
    ``what_if`` names GPUs of the catalog that the reference systems are priced on too ("": those of
    ``what_if_tables``). Raises the errors of ``placer.errors``.
    """
    gpus = [find_gpu(name).name for name in what_if if name]  # refused before anything is measured
    networks = entries(suite or "quick")
    if against is None:
        chosen = estimate_for(profile) if estimate else loaded(profile)
        target = share_target(share, None, chosen)
        seconds = QUICK_SECONDS_PER_CELL if suite in (None, "quick") else SECONDS_PER_CELL
        earlier = record.load(output).cells if output is not None and output.exists() else ()
        report = measure(networks, chosen, threads, output, seconds, list(entries_of(earlier).values()))
    else:
        path = recorded.measurements_of(Path(against))
        past = selected(record.load(path), {entry.name for entry in networks} if suite else None, threads)
        if estimate:
            chosen = estimate_for(profile_of_record(past, path) if profile is None else profile)
        else:
            chosen = profile_for(past, path, profile)
        target = share_target(share, past, chosen)
        report = replay(past, chosen, entries_of(past.cells), progress=say)
        if output is not None:
            record.save(report, output)
    systems = [] if what_if and all(cell.device == "cpu" for cell in report.cells) else reference_tables(report.cells)
    elsewhere = what_if_tables(report, chosen, gpus, say) if what_if else ()
    return shown(report, chosen, target, [*systems, *elsewhere])


def entries_of(cells: Sequence[Cell]) -> dict[str, Entry]:
    """Every network of the suites by its name, those held out among them where a cell is of one."""
    known = {entry.name: entry for entry in (*entries("full"), *accelerator_entries())}
    if any(cell.network not in known for cell in cells):  # they take a second to draw
        known |= {entry.name: entry for entry in entries("held-out")}
    return known


def estimate_for(source: Profile | str | Path | None) -> Profile:
    """The estimate for a calibrated machine's CPU, or for this one's (None), from another class of machine.

    Of a calibrated machine the speed probe is what its calibration says of the same work. This one is probed, with the
    threads that the process has. Raises ProfileError, and CalibrationError for a machine of which one core is not
    known.
    """
    profile = None if source is None else loaded(source)
    facts = machine.fingerprint() if profile is None else profile.fingerprint
    nearest = nearest_profile(facts, own_class=False)
    fits: list[Device] = []
    for threads in (torch.get_num_threads(),) if profile is None else profile.threads("cpu"):
        probed = machine.measure_speeds() if profile is None else _speeds_of(profile, threads)
        fits.append(cpu_from_speeds(nearest, kind_of(facts), beside(nearest, probed, threads), threads))
    return uncalibrated(fits, facts, f"estimate from {nearest.fingerprint['cpu']}")


def _tells_speed(fit: Device) -> bool:
    return bool(fit.cores) or any(family.measured for family in fit.families.values())


def _speeds_of(profile: Profile, threads: int) -> MeasuredSpeeds:
    """What the speed probe would find on a calibrated machine, by its calibration.

    Raises CalibrationError where that has not measured one core.
    """
    measured = {fit.threads for fit in profile.fits if fit.device == "cpu" and _tells_speed(fit)}
    if 1 not in measured:
        there = ", ".join(map(str, sorted(measured))) or "no"
        raise CalibrationError(
            f"--estimate needs the speed of one core, and {profile_title(profile)} has the CPU with {there} threads "
            "only: run placer calibrate --device cpu --output FILE on that machine, and give --profile FILE"
        )
    rates, core = (profile.fit("cpu", count).rates for count in (threads, 1))
    return MeasuredSpeeds(
        threads=threads,
        small_step_seconds=small_step_seconds(profile, threads),
        flops_per_second=rates["flops/float32"],
        bytes_per_second=rates["bytes_per_second"],
        core_flops_per_second=core["flops/float32"],
        core_bytes_per_second=core["bytes_per_second"],
        region_seconds=REGION if threads > 1 else 0.0,
    )
