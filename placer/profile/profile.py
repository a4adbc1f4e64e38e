"""The machine profile: what calibration learnt about one machine, and where it is kept.

Plain numbers in one JSON file per machine, safe to read from a stranger: nothing in it is ever executed, and
``placer.profile.schema`` checks every value before it is used.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.errors import ProfileDamaged, ProfileError, ProfileMissing
from placer.machine.host import machine_id, normal_device
from placer.profile.files import data_home, replace_file

#: History of the format. A reader refuses what it does not know, newer and older with different errors.
#:
#: 1 (placer 0.1): fingerprint, samples by (device, threads, family), fits, noise, warnings.
#: 2 (placer 0.1): a fit names the profile it learnt from (reference), a family the samples taken here (measured), and
#:   a point's noise is all of its variance; in format 1 the family's came on top.
#: 3 (placer 0.1): the points of a fit are packed in single precision instead of listed, and their weights are kept.
SCHEMA = 3
#: The oldest format still read.
OLDEST_SCHEMA = 1
#: A profile is a few MB; nothing larger than this is read.
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Sample:
    """One measured point: an op of a family, on one device.

    ``features`` are as the family's feature function gave them, in natural units. ``seconds`` is the median time on the
    device, ``host_seconds`` the median time the host needed to issue it (0 on the CPU), ``spread`` the inter-quartile
    range over the median, ``count`` the number of timings.
    """

    device: str
    threads: int
    family: str
    op: str
    features: tuple[float, ...]
    seconds: float
    host_seconds: float
    spread: float
    count: int


@dataclass(frozen=True, eq=False)
class FamilyFit:
    """A Gaussian process on log(seconds / floor) of one op family, as numbers.

    ``x`` is n x d (d named by ``feature_names``, already log-scaled), ``op_index`` n indices into ``ops``, ``y`` n log
    residuals and ``point_noise`` their n variances, ``length_scales`` d positive numbers; ``op_scale`` is the length
    scale between different ops. ``mean`` is the prior mean, ``signal`` its variance, and ``noise`` the variance of what
    features do not tell of an op; ``parameters`` are the constants of the family's physical floor. ``measured`` counts
    the samples taken on this very machine: a family that has none was carried over from a similar one. ``weights``
    are the n numbers that the posterior mean is a sum with; empty, they are solved for when they are needed.

    Whatever sequences are given are kept as read-only arrays, in the precision of the file.
    """

    feature_names: tuple[str, ...]
    ops: tuple[str, ...]
    x: NDArray[np.floating[Any]]
    op_index: NDArray[np.int64] | NDArray[np.float64]
    y: NDArray[np.floating[Any]]
    point_noise: NDArray[np.floating[Any]]
    length_scales: tuple[float, ...]
    op_scale: float
    mean: float
    signal: float
    noise: float
    parameters: Mapping[str, float]
    measured: int
    weights: NDArray[np.floating[Any]] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name in ("x", "op_index", "y", "point_noise", "weights"):
            array = np.array(getattr(self, name), dtype=np.int64 if name == "op_index" else np.float32)
            if name != "x":
                array = array.reshape(-1)
            elif not array.size:
                array = array.reshape(0, len(self.feature_names))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FamilyFit):
            return NotImplemented
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # arrays have none


@dataclass(frozen=True)
class DeviceFit:
    """What was fitted for one device at one number of CPU threads.

    ``rates`` are data-sheet numbers in FLOP/s, bytes/s and seconds (``"flops/float32"``, ``"bytes_per_second"``,
    ``"launch_seconds"``, ``"copy/h2d/pageable/bytes_per_second"``, ...); ``framework`` the coefficients of torch's own
    time; ``interval`` the constants of the 90 % interval. ``reference`` is the name of the shipped profile it built on.
    """

    device: str
    threads: int
    rates: Mapping[str, float]
    families: Mapping[str, FamilyFit]
    framework: Mapping[str, float]
    interval: Mapping[str, float]
    reference: str = ""


@dataclass(frozen=True)
class Profile:
    """A calibrated machine.

    ``created`` is ISO 8601 in UTC, ``fingerprint`` what ``machine.fingerprint()`` returned then, ``noise`` how quiet
    the machine was, ``warnings`` what a reader should know, ``seconds`` the time spent measuring. ``complete`` is False
    when calibration was interrupted, or whole families did not fit in its budget. ``name`` says where the profile came
    from and is not stored.
    """

    schema: int
    created: str
    fingerprint: Mapping[str, Any]
    samples: tuple[Sample, ...]
    fits: tuple[DeviceFit, ...]
    noise: Mapping[str, float]
    warnings: tuple[str, ...]
    complete: bool
    seconds: float
    name: str = ""

    def devices(self) -> tuple[str, ...]:
        """The calibrated devices, in the order they were fitted."""
        return tuple(dict.fromkeys(fit.device for fit in self.fits))

    def threads(self, device: str) -> tuple[int, ...]:
        """The numbers of CPU threads the device was calibrated with, ascending; empty if it was not."""
        device = normal_device(device)
        return tuple(sorted(fit.threads for fit in self.fits if fit.device == device))

    def fit(self, device: str, threads: int | None = None) -> DeviceFit:
        """The fit whose number of threads is nearest (as a ratio) to ``threads``; None: to the default at calibration.

        Raises ProfileError if the device was not calibrated.
        """
        wanted = normal_device(device)
        fits = [fit for fit in self.fits if fit.device == wanted]
        if not fits:
            known = ", ".join(self.devices()) or "none"
            raise ProfileError(
                f"device {device!r} is not calibrated in profile {self.name or 'in memory'} (calibrated: {known}); "
                f"run: placer calibrate --device {wanted}"
            )
        if threads is None:
            default = self.fingerprint.get("threads")
            threads = default if isinstance(default, int) and default > 0 else max(fit.threads for fit in fits)
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        aim = math.log(threads)
        return min(fits, key=lambda fit: (abs(math.log(fit.threads) - aim), fit.threads))


def default_path() -> Path:
    """This machine's profile file; it need not exist."""
    return profiles_folder() / f"{machine_id()}.json"


def profiles_folder() -> Path:
    """The folder of this machine's profile and of imported ones."""
    return data_home() / "profiles"


def shipped_folder() -> Path:
    """The folder of the profiles that come with placer."""
    return Path(__file__).parent / "shipped"


def shipped() -> tuple[str, ...]:
    """Names of the profiles that come with placer."""
    return tuple(sorted(path.stem for path in shipped_folder().glob("*.json")))


def imported() -> tuple[str, ...]:
    """Names of the profiles in the user's folder, other machines' in a shared home among them."""
    return tuple(sorted(path.stem for path in profiles_folder().glob("*.json")))


def named_path(name: str) -> Path:
    """Where a profile imported under ``name`` is kept. Raises ValueError for a name that is not one."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name) or ".." in name:
        raise ValueError(
            f"not a profile name: {name!r}; use up to 80 letters, digits, '.', '_' and '-', starting with a letter or "
            "digit and without '..' or a path separator"
        )
    return profiles_folder() / f"{name}.json"


def load(source: str | os.PathLike[str] | None = None, *, samples: bool = True) -> Profile:
    """Read a profile: this machine's (None), a file, or one imported or shipped under a name.

    A string is a path when it ends in ``.json`` or holds a path separator, else a name; the user's own profiles come
    before shipped ones. Staleness is not checked: see ``stale_fields``. Without ``samples`` they are left out, which
    takes less than half of the time. Raises ProfileMissing, ProfileDamaged,
    ProfileTooNew, ProfileTooOld, or ProfileError if the file cannot be read.
    """
    from placer.profile.schema import decode

    path, label = locate(source)
    try:
        if not path.is_file():
            if path.exists():
                raise ProfileDamaged(f"{path} is not a file; give a profile written by: placer calibrate")
            raise ProfileMissing(_missing(source, path))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"cannot read profile {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ProfileDamaged(
            f"{path} is larger than {MAX_BYTES >> 20} MB, so it is not a profile placer wrote; "
            "write a new one with: placer calibrate"
        )
    return replace(decode(data, str(path), samples=samples), name=label)


def save(profile: Profile, path: str | os.PathLike[str] | None = None) -> Path:
    """Write a profile (None: this machine's file) and return where. Old content stays until the new one is complete.

    Raises ProfileError if the file cannot be written, or if the profile would not be accepted by ``load`` (a NaN, a
    list of the wrong length): a file that cannot be read back is never written.
    """
    from placer.profile.schema import decode, encode

    target = default_path() if path is None else Path(path)
    data = encode(profile)
    try:
        if len(data) > MAX_BYTES:
            raise ProfileDamaged(f"{len(data) >> 20} MB of JSON, and at most {MAX_BYTES >> 20} MB are read back")
        decode(data, "profile")
    except ProfileError as error:
        raise ProfileError(f"refusing to write a profile that could not be read back: {error}") from error
    try:
        replace_file(target, data)
    except OSError as error:
        raise ProfileError(
            f"cannot write profile {target}: {error.strerror or error}; "
            "give another file (placer calibrate --output FILE) or folder (PLACER_HOME)"
        ) from error
    return target


def stale_fields(profile: Profile, current: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed on the machine since calibration, readable: ``("torch: 2.11.0 -> 2.13.0",)``; empty: nothing.

    ``current`` is a ``machine.fingerprint()``.
    """
    from placer.machine.staleness import differences

    return differences(profile.fingerprint, current, profile.threads("cpu"))


def locate(source: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """The file ``load`` would read for ``source``, and what to call it; whether it exists is not checked."""
    if source is None:
        path = default_path()
        return path, str(path)
    text = os.fspath(source)
    separators = {os.sep, os.altsep or os.sep, "/"}
    if not isinstance(source, str) or text.endswith(".json") or any(mark in text for mark in separators):
        return Path(text), text
    own = named_path(text)
    return (own if own.exists() else shipped_folder() / own.name), text


def _missing(source: str | os.PathLike[str] | None, path: Path) -> str:
    if source is None:
        return f"this machine is not calibrated (no {path}); run: placer calibrate"
    if path.parent == shipped_folder():
        names = ", ".join(sorted({*imported(), *shipped()})) or "none"
        return f"no profile is called {os.fspath(source)!r} (there is: {names}); list them with: placer profile list"
    return f"no profile at {path}; write one with: placer calibrate --output {path}"
