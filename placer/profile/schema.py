"""Profile <-> JSON. A profile may come from anybody, or from a disk that ran full: every value is validated.

``msgspec`` checks types, ranges, missing and unknown fields while it reads; what it cannot say is checked after it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from placer.collector import without_collection
from placer.errors import ProfileDamaged, ProfileError, ProfileTooNew, ProfileTooOld
from placer.profile.cores import Cores
from placer.profile.profile import OLDEST_SCHEMA, SCHEMA, Device, FamilyFit, Profile

FORMAT = "placer machine profile"
#: Largest offset of an op, and number of a device, that is read: an offset is a factor of 20,000 then.
MOST_OFFSET = 10.0
#: A profile nests seven deep. The check comes before the parser, whose recursion limit is the caller's to change.
MAX_DEPTH = 32
_PIECE = 1 << 20
_BRACKETS = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: Kernels that one call of an op runs in, at most; their number is stored under such names.
_MOST_KERNELS, _KERNELS = 1e6, "kernels/"

#: One line of text without what steers a terminal.
_PRINTABLE = "^[^\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\ufeff]*\\Z"
Line = Annotated[str, Meta(max_length=1000, pattern=_PRINTABLE)]
DeviceName = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*(:[0-9]{1,3})?\\Z")]
Positive = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]
Learnt = Annotated[float, Meta(ge=-MOST_OFFSET, le=MOST_OFFSET)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
Whole = Annotated[int, Meta(ge=0, le=2**53)]


class _Family(Struct, forbid_unknown_fields=True):
    numbers: Annotated[tuple[Learnt, ...], Meta(max_length=64)]
    offsets: dict[Line, Learnt]
    sigma: Amount
    measured: Whole


class _Cores(Struct, forbid_unknown_fields=True):
    """Of the cores that share an op; FLOP/s and bytes/s are rates of the fit."""

    region_seconds: Amount
    cache_bytes: Positive
    thread_seconds: Amount
    pace: Positive


class _Fit(Struct, forbid_unknown_fields=True, omit_defaults=True):
    device: DeviceName
    threads: Count
    rates: dict[Line, Amount]
    families: dict[Line, _Family]
    framework: dict[Line, Amount]
    interval: dict[Line, Amount]
    reference: Line
    gpu: Line = ""
    cores: _Cores | None = None
    edition: Whole = 0


class _Document(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    format: str
    schema: int
    created: Line
    complete: bool
    seconds: Amount
    fingerprint: dict[Line, Any]
    warnings: tuple[Line, ...]
    noise: dict[Line, Amount]
    unusable: dict[DeviceName, Line] = {}
    fits: tuple[_Fit, ...]
    #: Measured ops, which earlier versions kept here: read no more, and written as none.
    samples: Raw


class _Head(Struct):
    format: str
    schema: int


def encode(profile: Profile) -> bytes:
    """The profile as UTF-8 JSON; measured values keep six significant digits.

    ProfileError for what JSON lacks, and for an estimate: read back, it would pass for a calibration.
    """
    if profile.estimated:
        raise ProfileError("refusing to write an estimate as a profile; run: placer calibrate")
    try:
        _check_fingerprint(dict(profile.fingerprint))  # JSON would hold null for what is infinite
        document = _Document(
            format=FORMAT,
            schema=profile.schema,
            created=profile.created,
            complete=profile.complete,
            seconds=profile.seconds,
            fingerprint=dict(profile.fingerprint),
            warnings=profile.warnings,
            noise=dict(profile.noise),
            unusable=dict(profile.unusable),
            fits=tuple(_encoded_fit(fit) for fit in profile.fits),
            samples=Raw(b"[]"),
        )
        return msgspec.json.encode(document, enc_hook=_plain) + b"\n"
    except (TypeError, ValueError, OverflowError) as error:
        raise ProfileError(f"refusing to write the profile: {error}") from error


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _encoded_fit(fit: Device) -> _Fit:
    stored = {name: getattr(fit, name) for name in _Fit.__struct_fields__}
    cores = None
    if fit.cores is not None:
        cores = _Cores(**{name: getattr(fit.cores, name) for name in _Cores.__struct_fields__})
    return _Fit(**{**stored, "families": {name: _rounded(f) for name, f in fit.families.items()}, "cores": cores})


def _rounded(family: FamilyFit) -> _Family:
    """A family, what is learnt to a ten-thousandth."""
    offsets = {name: round(offset, 4) for name, offset in family.offsets.items()}
    return _Family(tuple(round(n, 4) for n in family.numbers), offsets, round(family.sigma, 4), family.measured)


def decode(data: bytes, where: str) -> Profile:
    """Read a profile from bytes; ``where`` names the file in errors. Raises ProfileDamaged, -TooNew or -TooOld."""
    try:
        if _depth(data) > MAX_DEPTH and _depth(re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)) > MAX_DEPTH:
            raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
        with without_collection():
            _check_format(data, where)
            return _profile(msgspec.json.decode(data, type=_Document))
    except (ValueError, RecursionError) as error:  # those of msgspec among them
        raise ProfileDamaged(f"{where} is damaged: {error}; write a new one with: placer calibrate") from None


def _check_format(data: bytes, where: str) -> None:
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        head = _Head("", 0)
    if head.format != FORMAT:
        raise ProfileDamaged(f"{where} is not a placer profile; write one with: placer calibrate")
    if head.schema > SCHEMA:
        raise ProfileTooNew(f"{where} has format {head.schema}, this placer reads up to {SCHEMA}: upgrade placer")
    if head.schema < OLDEST_SCHEMA:
        raise ProfileTooOld(f"{where} has format {head.schema}, which is no longer read; run: placer calibrate")


def _depth(data: bytes) -> int:
    """Deepest bracket nesting, strings not told apart."""
    deepest = depth = 0
    # Piece by piece: the running sums of a file full of brackets would take eight times its size.
    for start in range(0, len(data), _PIECE):
        steps = np.frombuffer(data[start : start + _PIECE].translate(_BRACKETS, _NOT_BRACKETS), dtype=np.int8)
        if len(steps):
            depths = depth + np.cumsum(steps, dtype=np.int64)
            deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    return deepest


def _profile(document: _Document) -> Profile:
    fits = tuple(_fit(fit, f"fits[{i}]") for i, fit in enumerate(document.fits))
    if len({(fit.device, fit.threads) for fit in fits}) < len(fits):
        raise ValueError("fits: the same device and threads twice")
    several = [i for i, fit in enumerate(fits) if fit.cores]
    core = next((fit for fit in fits if (fit.device, fit.threads) == ("cpu", 1)), None)
    if several and (core is None or _lacking(core.rates)):
        raise ValueError(f"fits[{several[0]}].cores: there is no fit of one thread, or it has no rates")
    _check_fingerprint(document.fingerprint)
    stored = {name: getattr(document, name) for name in _Document.__struct_fields__}
    del stored["format"], stored["samples"]
    return Profile(**{**stored, "fits": fits})


def _check_fingerprint(fingerprint: dict[str, Any]) -> None:
    """Open-ended, but for what others rely on: sizes are numbers, and every accelerator has a device."""
    try:
        _check_facts(fingerprint)
        msgspec.convert(fingerprint, _Machine)
    except msgspec.ValidationError as error:
        raise ValueError(f"fingerprint: {error}") from None


def _check_facts(value: Any) -> None:
    """Lines of text, finite numbers, flags, lists and objects of them. Raises ValidationError."""
    if isinstance(value, dict):
        msgspec.convert(list(value), list[Line])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_facts(item)
    else:
        msgspec.convert(value, Line | bool | int | Finite | None)


class _Accelerator(Struct):
    device: DeviceName
    memory_bytes: Amount = 0


class _Machine(Struct):
    cores: Amount = 0
    memory_bytes: Amount = 0
    accelerators: list[_Accelerator] = []


def _fit(fit: _Fit, where: str) -> Device:
    for name, count in fit.framework.items():
        if name.startswith(_KERNELS) and count > _MOST_KERNELS:
            raise ValueError(f"{where}.framework.{name}: no call runs in {count:g} kernels")
    families = {name: FamilyFit(**msgspec.structs.asdict(family)) for name, family in fit.families.items()}
    cores = None
    if fit.cores is not None:
        if fit.device != "cpu" or fit.threads < 2 or fit.families:
            raise ValueError(f"{where}.cores: only a CPU has them, with several threads and no families")
        if lacking := _lacking(fit.rates):
            raise ValueError(f"{where}.cores: the rates have no {', no '.join(lacking)}")
        rates = {"flops_per_second": fit.rates["flops/float32"], "bytes_per_second": fit.rates["bytes_per_second"]}
        cores = Cores(fit.rates, **rates, **msgspec.structs.asdict(fit.cores))
    return Device(**{**msgspec.structs.asdict(fit), "families": families, "cores": cores})


def _lacking(rates: Mapping[str, float]) -> list[str]:
    """The rates without which cores share nothing."""
    return [name for name in ("flops/float32", "bytes_per_second") if not rates.get(name, 0.0) > 0.0]
