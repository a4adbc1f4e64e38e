"""Profile <-> JSON: the encoder, and a decoder that believes nothing.

A profile may come from anybody, or from a disk that ran full, so every value is checked for its type, range and
length before it is used, with an error that says where. Long arrays are checked in bulk, since ``choose`` loads the
profile in every training script. Layout: samples are tables by (device, threads, family), one row per sample:
``[op index, seconds, host seconds, spread, count, features...]``. The points of a family's fit are rows of single
precision, packed: ``[inputs..., op index, log residual, variance]``.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from placer.collector import without_collection
from placer.errors import ProfileDamaged, ProfileError, ProfileTooNew, ProfileTooOld
from placer.profile.json_values import (
    UnfitError,
    brief,
    check_indices,
    check_tree,
    device_name,
    integer,
    json_list,
    json_object,
    matrix,
    number,
    numbers,
    pack,
    packed,
    text,
    texts,
    vector,
)
from placer.profile.profile import OLDEST_SCHEMA, SCHEMA, DeviceFit, FamilyFit, Profile, Sample

FORMAT = "placer machine profile"
#: A profile nests seven deep. The check comes before the parser, whose recursion limit is the caller's to change.
MAX_DEPTH = 32
_PIECE = 1 << 20
#: Points of a family at most, a few times what calibration keeps: pricing takes time and memory for each of them.
MOST_POINTS = 2000
#: Kernels that one call of an op runs in, at most; their number is stored under such names.
_MOST_KERNELS, _KERNELS = 1e6, "kernels/"
_FIXED_COLUMNS = 5  # of a sample row, before its features
_POINT_COLUMNS = 3  # of a point, after its inputs: op index, log residual, variance
#: Opening brackets become +1, closing ones -1 (as signed bytes), everything else goes.
_BRACKETS = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def encode(profile: Profile) -> bytes:
    """The profile as UTF-8 JSON; measured values keep six significant digits.

    ProfileError for what JSON lacks, and for an estimate: read back, it would pass for a calibration.
    """
    if profile.estimated:
        raise ProfileError("refusing to write an estimate as a profile; run: placer calibrate")
    document = {
        "format": FORMAT,
        "schema": profile.schema,
        "created": profile.created,
        "complete": profile.complete,
        "seconds": profile.seconds,
        "fingerprint": dict(profile.fingerprint),
        "warnings": list(profile.warnings),
        "noise": dict(profile.noise),
        **({"unusable": dict(profile.unusable)} if profile.unusable else {}),
        "fits": [_encode_fit(fit) for fit in profile.fits],
        # Last, so that a reader who needs no samples can stop here.
        "samples": _encode_samples(profile.samples),
    }
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise ProfileError(f"refusing to write the profile: {error}") from error


def _encode_fit(fit: DeviceFit) -> dict[str, Any]:
    families = {name: _encode_family(family) for name, family in fit.families.items()}
    plain = {key: value for key, value in vars(fit).items() if key not in ("gpu", "estimated")}
    return {**plain, **({"gpu": fit.gpu} if fit.gpu else {}), "families": families}


def _encode_family(family: FamilyFit) -> dict[str, Any]:
    points = np.column_stack((family.x, family.op_index, family.y, family.point_noise))
    plain = {key: value for key, value in vars(family).items() if not isinstance(value, np.ndarray)}
    return {**plain, "points": pack(points), "weights": pack(family.weights)}


def _encode_samples(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    tables: dict[tuple[str, int, str, int], list[Sample]] = {}
    for s in samples:
        tables.setdefault((s.device, s.threads, s.family, len(s.features)), []).append(s)
    encoded = []
    for (device, threads, family, _), group in tables.items():
        ops = list(dict.fromkeys(s.op for s in group))
        rows = [
            [ops.index(s.op), *_short((s.seconds, s.host_seconds, s.spread)), s.count, *_short(s.features)]
            for s in group
        ]
        encoded.append({"device": device, "threads": threads, "family": family, "ops": ops, "rows": rows})
    return encoded


def _short(values: Iterable[float], digits: int = 6) -> list[float]:
    """Few significant digits: six are far below the measurement's own noise, and a third of the file."""
    rounded = (float(f"{value:.{digits}g}") for value in values)
    return [int(value) if value.is_integer() and abs(value) < 1e15 else value for value in rounded]


def decode(data: bytes, where: str, *, samples: bool = True) -> Profile:
    """Read a profile from bytes; ``where`` names the file in errors. Raises ProfileDamaged, -TooNew or -TooOld.

    Without ``samples``, which take most of the time and which pricing does not need, the profile has none, and damage
    within them goes unnoticed.
    """
    if not samples and (short := _without_samples(data)) is not None:
        with contextlib.suppress(ProfileError):  # whatever is wrong, the whole file says it better
            return decode(short, where)
    try:
        with without_collection():
            return _decode(data, where)
    except UnfitError as error:
        raise ProfileDamaged(f"{where} is damaged: {error}; write a new one with: placer calibrate") from None


def _decode(data: bytes, where: str) -> Profile:
    document = _parse(data)
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or document.get("format") != FORMAT or type(schema) is not int:
        raise ProfileDamaged(f"{where} is not a placer profile; write one with: placer calibrate")
    if schema > SCHEMA:
        raise ProfileTooNew(f"{where} has format {schema}, this placer reads up to {SCHEMA}: upgrade placer")
    if schema < OLDEST_SCHEMA:
        raise ProfileTooOld(f"{where} has format {schema}, which is no longer read; run: placer calibrate")
    return _profile(document)


def _without_samples(data: bytes) -> bytes | None:
    """The document with an empty list of samples; None if it is not laid out as ``encode`` writes it."""
    # Quotes within a text are escaped, so this is a key; one that stands deeper leaves brackets open.
    start = data.rfind(b',"samples":[')
    return data[:start] + b',"samples":[]}' if start > 0 and data.endswith((b"]}", b"]}\n")) else None


def _parse(data: bytes) -> Any:
    try:
        content = data.decode("utf-8")
        if _depth(data) > MAX_DEPTH and _depth(re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)) > MAX_DEPTH:
            raise UnfitError(f"it nests deeper than {MAX_DEPTH} levels")
        return json.loads(content, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise UnfitError(f"not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        cut = " (cut short?)" if error.pos >= len(content.rstrip()) else ""
        raise UnfitError(f"{error.msg} at line {error.lineno} column {error.colno}{cut}") from None
    except UnfitError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise UnfitError(str(error)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise UnfitError(f"it holds {name}, which is not a number")


def _depth(data: bytes) -> int:
    """Deepest bracket nesting, strings not told apart."""
    deepest = depth = 0
    # Piece by piece: the running sums of a file full of brackets would take eight times its size.
    for start in range(0, len(data), _PIECE):
        marks = np.frombuffer(data[start : start + _PIECE].translate(_BRACKETS, _NOT_BRACKETS), dtype=np.int8)
        depths = depth + np.cumsum(marks, dtype=np.int64)
        if len(depths):
            deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    return deepest


def _profile(document: dict[str, Any]) -> Profile:
    optional = ("unusable",) if "unusable" in document else ()
    keys = (
        "format", "schema", "created", "complete", "seconds", "fingerprint", "warnings", "noise", "fits", "samples",
        *optional,
    )  # fmt: skip
    fields = json_object(document, "the profile", keys)
    fits = tuple(_fit(item, f"fits[{i}]") for i, item in enumerate(json_list(fields["fits"], "fits")))
    if len({(fit.device, fit.threads) for fit in fits}) < len(fits):
        raise UnfitError("fits: the same device and threads twice")
    tables = (_table(item, f"samples[{i}]") for i, item in enumerate(json_list(fields["samples"], "samples")))
    if type(fields["complete"]) is not bool:
        raise UnfitError(f"complete: expected true or false, not {brief(fields['complete'])}")
    fingerprint = _fingerprint(fields["fingerprint"])
    unusable = json_object(fields.get("unusable", {}), "unusable", None)
    return Profile(
        schema=SCHEMA,
        created=text(fields["created"], "created"),
        fingerprint=fingerprint,
        samples=tuple(chain.from_iterable(tables)),
        fits=fits,
        noise=numbers(fields["noise"], "noise", low=0.0),
        warnings=texts(fields["warnings"], "warnings"),
        complete=fields["complete"],
        seconds=number(fields["seconds"], "seconds", low=0.0),
        unusable={device_name(name, "a key of unusable"): text(why, "unusable") for name, why in unusable.items()},
    )


def _fingerprint(value: Any) -> dict[str, Any]:
    """Open-ended, but for what others rely on: sizes are numbers, and every accelerator has a device."""
    fingerprint = json_object(value, "fingerprint", None)
    check_tree(fingerprint, "fingerprint")
    _check_sizes(fingerprint, "fingerprint")
    for i, facts in enumerate(json_list(fingerprint.get("accelerators", []), "fingerprint.accelerators")):
        where = f"fingerprint.accelerators[{i}]"
        device_name(json_object(facts, where, None).get("device"), f"{where}.device")
        _check_sizes(facts, where)
    return fingerprint


def _check_sizes(facts: dict[str, Any], where: str) -> None:
    for name in ("cores", "memory_bytes"):
        number(facts.get(name, 0), f"{where}.{name}", low=0.0)


def _fit(value: Any, where: str) -> DeviceFit:
    gpu = ("gpu",) if isinstance(value, dict) and "gpu" in value else ()
    fields = json_object(
        value, where, ("device", "threads", "rates", "families", "framework", "interval", "reference", *gpu)
    )
    families = json_object(fields["families"], f"{where}.families", None)
    framework = numbers(fields["framework"], f"{where}.framework", low=0.0)
    for name, count in framework.items():
        if name.startswith(_KERNELS) and count > _MOST_KERNELS:
            raise UnfitError(f"{where}.framework.{name}: no call runs in {count:g} kernels")
    return DeviceFit(
        device=device_name(fields["device"], f"{where}.device"),
        threads=integer(fields["threads"], f"{where}.threads", low=1),
        rates=numbers(fields["rates"], f"{where}.rates", low=0.0),
        families={name: _family(family, f"{where}.families.{name}") for name, family in families.items()},
        framework=framework,
        interval=numbers(fields["interval"], f"{where}.interval", low=0.0),
        reference=text(fields["reference"], f"{where}.reference"),
        gpu=text(fields["gpu"], f"{where}.gpu") if gpu else "",
    )


def _family(value: Any, where: str) -> FamilyFit:
    keys = (
        "feature_names", "ops", "points", "weights", "length_scales", "op_scale", "mean", "signal", "noise",
        "parameters", "measured",
    )  # fmt: skip
    fields = json_object(value, where, keys)
    names, ops = texts(fields["feature_names"], f"{where}.feature_names"), texts(fields["ops"], f"{where}.ops")
    width = len(names)
    table = packed(fields["points"], f"{where}.points", width + _POINT_COLUMNS)
    if len(table) > MOST_POINTS:
        raise UnfitError(f"{where}.points: {len(table)} of them, and at most {MOST_POINTS} are read")
    x, op_index, y, point_noise = np.split(table, [width, width + 1, width + 2], axis=1)
    weights = packed(fields["weights"], f"{where}.weights", 1)
    if len(weights) not in (0, len(x)):
        raise UnfitError(f"{where}.weights: expected one for each of {len(x)} points, or none, found {len(weights)}")
    if not (point_noise >= 0).all():
        raise UnfitError(f"{where}: the variance of a point cannot be negative")
    check_indices(op_index, f"{where}: the op of a point", len(ops))
    scales = vector(fields["length_scales"], f"{where}.length_scales", width)
    if not (scales > 0).all():
        raise UnfitError(f"{where}.length_scales: every one must be positive")
    op_scale = number(fields["op_scale"], f"{where}.op_scale", low=0.0)
    if op_scale == 0:
        raise UnfitError(f"{where}.op_scale: must be positive")
    return FamilyFit(
        feature_names=names,
        ops=ops,
        x=x,
        op_index=op_index,
        y=y,
        point_noise=point_noise,
        length_scales=tuple(scales.tolist()),
        op_scale=op_scale,
        mean=number(fields["mean"], f"{where}.mean"),
        signal=number(fields["signal"], f"{where}.signal", low=0.0),
        noise=number(fields["noise"], f"{where}.noise", low=0.0),
        parameters=numbers(fields["parameters"], f"{where}.parameters", low=0.0),
        measured=integer(fields["measured"], f"{where}.measured", low=0),
        weights=weights,
    )


def _table(value: Any, where: str) -> list[Sample]:
    fields = json_object(value, where, ("device", "threads", "family", "ops", "rows"))
    device = device_name(fields["device"], f"{where}.device")
    threads = integer(fields["threads"], f"{where}.threads", low=1)
    family, ops = text(fields["family"], f"{where}.family"), texts(fields["ops"], f"{where}.ops")
    rows = json_list(fields["rows"], f"{where}.rows")
    width = len(rows[0]) if rows and isinstance(rows[0], list) else _FIXED_COLUMNS
    if width < _FIXED_COLUMNS:
        raise UnfitError(f"{where}.rows: expected at least {_FIXED_COLUMNS} columns, not {width}")
    table = matrix(rows, f"{where}.rows", width)
    check_indices(table[:, 0], f"{where}.rows column 0", len(ops))
    counts = table[:, 4]
    if (table[:, 1:4] < 0).any() or (counts < 1).any() or (counts != np.floor(counts)).any() or (counts > 2**53).any():
        raise UnfitError(f"{where}.rows: times and spreads must not be negative, counts must be whole and at least 1")
    return [
        _sample(
            device=device, threads=threads, family=family, op=ops[int(op)], features=tuple(features),
            seconds=seconds, host_seconds=host_seconds, spread=spread, count=int(count),
        )
        for op, seconds, host_seconds, spread, count, *features in table.tolist()
    ]  # fmt: skip


def _sample(**fields: Any) -> Sample:
    """A Sample from checked fields; a frozen dataclass's own __init__ would take most of the time of loading."""
    sample = object.__new__(Sample)
    sample.__dict__.update(fields)
    return sample
