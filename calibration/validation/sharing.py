"""A record that a user shares: ``placer validate --share`` writes it, ``calibration/records/`` takes it as it is.

It is a validation record that holds its machine's calibration, so that it is predicted anew wherever it lies. Only what
is named here gets in: no name of a host, a user or a file, and no text of an error, which may hold one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import msgspec

import placer
from placer.calibration.validation.compare import repeatability_score
from placer.calibration.validation.record import SCHEMA, Cell, Report
from placer.calibration.validation.table import Table, show
from placer.errors import CalibrationError, ProfileDamaged, ProfileTooOld
from placer.files import check_free, write_new
from placer.pricing import CpuSpeeds, cpu_from_speeds, is_current, nearest_profile
from placer.profile import Device, Profile, decode, encode, kind_of, stale_fields

#: What is told of a machine, and of each of its accelerators.
MACHINE = (
    "cpu", "cpu_version", "cpu_instructions", "cores", "memory_bytes", "torch", "threads", "matmul_precision",
    "tf32_matmul", "tf32_convolution",
)  # fmt: skip
ACCELERATOR = ("device", "name", "memory_bytes", "driver", "sms", "compute_capability")
#: What is told of a step. Whatever else a cell has is predicted anew.
CELL = (
    "network", "family", "batch", "mode", "device", "threads", "optimizer", "predicted", "low", "high",
    "prediction_error", "measured", "p10", "p90", "count", "repeatability", "visits", "error",
)  # fmt: skip
#: Of errors, the kind alone.
ERRORS = ("prediction_error", "error")
#: Significant digits of a time, and bytes that a file may have: a quick suite takes some 50,000.
DIGITS, MOST_BYTES = 5, 500_000
WHERE_TO = (
    "placer itself sends nothing, ever. To send this file, attach it to an issue in placer's repository,",
    "or add it to calibration/records/ there by a pull request.",
)
#: Relative error between two visits of half of the steps, from which on the machine counts as busy.
BUSY = 0.5


def default_name(fingerprint: Mapping[str, Any], created: str) -> str:
    """The usual name of a shared record: ``nvidia-h200-16-core-2026-11-29.json``."""
    accelerators = [str(facts.get("name")) for facts in fingerprint["accelerators"]]
    name = re.sub(r"\((r|tm)\)", "", next(iter(accelerators), str(fingerprint["cpu"])).lower())
    words = [*re.findall("[a-z0-9]+", name), f"{fingerprint['cores']}-core", created.partition("T")[0]]
    return "-".join(words) + ".json"


def target_of(name: str, fingerprint: Mapping[str, Any], created: str, profile: Profile) -> Path:
    """The file that ``name`` asks for ("": the usual one), checked before anything is measured.

    Raises PlacerError where that is taken, CalibrationError where the profile is no calibration of the machine.
    """
    target = Path(name or default_name(fingerprint, created))
    check_free(target)
    why = "it was never calibrated" if profile.estimated or not profile.created else ""
    why = why or "; ".join(stale_fields(profile, fingerprint))
    if why:
        raise CalibrationError(
            f"a shared record holds the calibration of the machine that ran it, and {profile.name or 'the profile'} is "
            f"none ({why}); run placer calibrate, then placer validate --share without --profile"
        )
    return target


def share(report: Report, profile: Profile, target: Path, stream: TextIO) -> None:
    """Show on ``stream`` what is shared of ``report``, predicted by ``profile``, then write it to ``target``.

    Raises CalibrationError where there is nothing to share or too much, PlacerError where the file is taken.
    """
    if not any(cell.predicted and cell.measured for cell in report.cells):
        raise CalibrationError("there is nothing to share: no step was both predicted and measured")
    data = encoded(report, profile)
    if len(data) > MOST_BYTES:
        raise CalibrationError(
            f"{len(data):,} bytes are more than the {MOST_BYTES:,} that a shared record may have; "
            "share the quick suite: placer validate --share"
        )
    show([summary(report, profile, target, len(data)), *remarks(report), *WHERE_TO], stream)
    try:
        write_new(target, data)
    except OSError as error:
        raise CalibrationError(
            f"cannot write {target}: {error.strerror or error}; give another --share FILE"
        ) from error


def encoded(report: Report, profile: Profile) -> bytes:
    """The file's content: JSON in UTF-8."""
    calibration = replace(profile, fingerprint=shared_facts(profile.fingerprint), warnings=(), unusable={})
    document = {
        "schema": SCHEMA,
        "placer": placer.__version__,
        "created": report.created,
        "fingerprint": shared_facts(report.fingerprint),
        "profile": f"calibration of {profile.created}",
        "calibration": json.loads(encode(calibration)),
        "cells": [shared_cell(cell) for cell in report.cells],
        "skipped": dict(report.skipped),
    }
    return written(document)


def written(document: Mapping[str, Any]) -> bytes:
    """A record's JSON as a file has it."""
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def shared_facts(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a machine."""
    told = {name: fingerprint[name] for name in MACHINE if name in fingerprint}
    told["accelerators"] = [
        {name: facts[name] for name in ACCELERATOR if name in facts} for facts in fingerprint.get("accelerators", ())
    ]
    return told


def shared_cell(cell: Cell) -> dict[str, Any]:
    """What is told of a step; nothing of what is not known."""
    told: dict[str, Any] = {}
    for name, value in asdict(cell).items():
        if name not in CELL or value in (None, "", ()):
            continue
        if name in ERRORS:
            told[name] = kind_of_error(value)
        elif name == "visits":
            told[name] = [rounded(seconds) for seconds in value]
        else:
            told[name] = rounded(value) if isinstance(value, float) else value
    return told


def kind_of_error(text: str) -> str:
    """The first name of an error: ``OutOfMemoryError`` of ``defect: OutOfMemoryError: ...``."""
    return next(iter(re.findall(r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b", text)), "failed")


def rounded(value: float) -> float:
    """To as many digits as a measurement has."""
    return float(f"{value:.{DIGITS}g}")


def summary(report: Report, profile: Profile, target: Path, size: int) -> Table:
    """What a file holds, field by field."""
    told = shared_facts(report.fingerprint)
    accelerators = [str(facts.get("name")) for facts in told["accelerators"]] or ["no accelerator"]
    timed = [cell for cell in report.cells if cell.measured]
    fits = [f"{fit.device} with {fit.threads} thread{'s' * (fit.threads > 1)}" for fit in profile.fits]
    rows = (
        ("placer, created", f"{placer.__version__}, {report.created}"),
        ("fingerprint", f"{told.get('cpu')}, {told.get('cores')} cores; {', '.join(accelerators)}"),
        ("", f"torch {told.get('torch')}; memory, driver, vector instructions and precision of products"),
        ("profile, calibration", f"of {profile.created}: rates and fitted numbers of {', '.join(fits)}"),
        ("cells", f"{len(timed)} steps of {len({cell.network for cell in timed})} networks of placer's own suite"),
        ("", "predicted and measured seconds, each visit, and of what failed the kind of error"),
        ("skipped", ", ".join(report.skipped) or "no network"),
        ("not in it", "names of hosts, users, files and folders; your code, models and data"),
    )
    return Table(f"Shared record: {target}, {size:,} bytes", ("field", "content"), rows)


def remarks(report: Report) -> Iterator[str]:
    """What makes a record worth less than it could be."""
    apart = repeatability_score(report.cells).median_error
    if apart > BUSY:
        yield f"This machine was busy: half of the steps took {apart:.0%} more or less on the last visit than on the"
        yield "first. A record says more where no other program runs."


def calibration_of(report: Report, path: Path) -> Profile | None:
    """The calibration that the record at ``path`` holds; None where it has none.

    What belongs to networks of another version is estimated (``renewed``); where the format is not read any more, the
    nearest profile that comes with placer stands for all. Raises CalibrationError where it is damaged, ProfileTooNew.
    """
    if report.calibration is None:
        return None
    try:
        profile = decode(msgspec.json.encode(report.calibration), str(path))
    except ProfileTooOld:
        nearest = nearest_profile(report.fingerprint)
        return replace(nearest, fits=tuple(replace(fit, estimated=True) for fit in nearest.fits))
    except ProfileDamaged as error:
        raise CalibrationError(
            f"the calibration within {path} is damaged: {error}; on its machine, write the record anew with: "
            "placer validate --share"
        ) from error
    return renewed(replace(profile, name=path.name))


def renewed(calibration: Profile) -> Profile:
    """A calibration by the networks as they are: what was fitted to others is left out of it.

    The CPU is then the nearest one that comes with placer, at the rates that were measured; an accelerator has what is
    published of it, and its host's own costs. Raises ProfileError.
    """
    on_cpu = [fit for fit in calibration.fits if fit.device == "cpu"]
    others = [fit for fit in calibration.fits if fit.device != "cpu"]
    if not all(map(is_current, on_cpu)):
        nearest, kind = nearest_profile(calibration.fingerprint), kind_of(calibration.fingerprint)
        on_cpu = [cpu_from_speeds(nearest, kind, _speeds(fit, on_cpu), fit.threads) for fit in on_cpu]
    for number, fit in enumerate(others):
        if not is_current(fit):
            others[number] = replace(fit, families={}, estimated=True)
    return replace(calibration, fits=(*on_cpu, *others))


def _speeds(fit: Device, on_cpu: Sequence[Device]) -> CpuSpeeds:
    """What a calibration measured of a CPU; where one thread was not, a core is its share of all."""
    core = next((other for other in on_cpu if other.threads == 1), fit)
    return CpuSpeeds(
        dispatch_seconds=fit.rates["dispatch_seconds"],
        flops_per_second=fit.rates["flops/float32"],
        bytes_per_second=fit.rates["bytes_per_second"],
        core_flops_per_second=core.rates["flops/float32"] / core.threads,
        core_bytes_per_second=core.rates["bytes_per_second"] / core.threads,
        region_seconds=fit.cores.region_seconds if fit.cores else 0.0,
    )
