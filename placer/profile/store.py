"""Where profiles are kept: this machine's, imported ones and those that come with placer; reading and writing them.

A profile is one JSON file, which may be packed by xz. Nothing in it is ever executed, and ``schema`` checks every value
before it is used.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

from placer.errors import ProfileDamaged, ProfileError, ProfileMissing
from placer.files import read_regular, replace_file
from placer.machine import machine_id
from placer.profile.profile import Profile
from placer.profile.schema import FORMAT, decode, encode

#: A profile is a few MB; nothing larger than this is read.
MAX_BYTES = 64 * 2**20

#: How the names of profiles end, and what a packed file begins with.
SUFFIXES, _PACKED = (".json", ".json.xz"), b"\xfd7zXZ\x00"
#: Bytes that hold the name of the format.
_FIRST = 100

_loaded: dict[str, tuple[tuple[int, int, int], Profile]] = {}


def data_home() -> Path:
    """The folder that holds profiles and the history: ``$PLACER_HOME``, else the user's data directory."""
    if home := os.environ.get("PLACER_HOME"):
        # Not Path.expanduser, which raises for the home of a user that is not there: choose() would, too.
        return Path(os.path.expanduser(home))  # noqa: PTH111
    from platformdirs import user_data_path  # only here, so that PLACER_HOME works without it

    return Path(user_data_path("placer", appauthor=False))


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


def working_file(target: Path, suffix: str) -> Path:
    """A file that goes with calibrating into ``target``: in placer's own folder, as other files lie beside a profile.

    It is the same for every spelling of the path, and another one on another machine that shares the folder.
    """
    place = f"{machine_id()} {os.path.realpath(target)}"
    return data_home() / "calibrations" / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}{suffix}"


def check_target(path: Path) -> None:
    """Raise ProfileError where something else than a profile is at ``path``: writing a profile would end it.

    What lies in placer's own folder is placer's, however damaged.
    """
    target = Path(os.path.realpath(path))
    if target.is_relative_to(os.path.realpath(data_home())) or not target.exists():
        return
    other = "name another file, or remove it"
    if not target.is_file():
        raise ProfileError(f"{path} is not a file, so no profile is written to it; {other}")
    try:
        with target.open("rb") as file:
            first = file.read(_FIRST)
    except OSError as error:
        raise ProfileError(f"cannot read {path}, which is there already: {error.strerror or error}; {other}") from error
    if first and FORMAT.encode() not in first:
        raise ProfileError(f"{path} exists and is no profile, so it is not overwritten; {other}")


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


def load(source: str | os.PathLike[str] | None = None) -> Profile:
    """Read a profile: this machine's (None), a file, or one imported or shipped under a name.

    A string is a path when it ends in ``.json`` or ``.json.xz`` or holds a path separator, else a name; the user's own
    profiles come before shipped ones. Staleness is not checked: see ``stale_fields``. Raises ProfileMissing,
    ProfileDamaged, ProfileTooNew, ProfileTooOld, or ProfileError if the file cannot be read.
    """
    path, label = locate(source)
    try:
        if not path.exists():
            raise ProfileMissing(_missing(source, path))
        data = _unpacked(read_regular(path, MAX_BYTES + 1), path)
    except OSError as error:
        raise ProfileError(f"cannot read profile {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ProfileDamaged(
            f"{path} is larger than {MAX_BYTES >> 20} MB, so it is not a profile placer wrote; "
            "write a new one with: placer calibrate"
        )
    return replace(decode(data, str(path)), name=label)


def _unpacked(data: bytes, path: Path) -> bytes:
    """The JSON of a profile, as far as one is read. Raises ProfileDamaged where it cannot be unpacked."""
    if not data.startswith(_PACKED):
        return data
    import lzma  # only here: some builds of Python are without it

    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        unpacked = unpacker.decompress(data, MAX_BYTES + 1)
        if not unpacker.eof and len(unpacked) <= MAX_BYTES:
            raise lzma.LZMAError("its end is missing")
    except lzma.LZMAError as error:
        raise ProfileDamaged(f"{path} is damaged: {error}; write a new one with: placer calibrate") from error
    return unpacked


def load_cached(source: Profile | str | os.PathLike[str] | None) -> Profile:
    """A profile, read only when its file changed since the last time. Raises ProfileError."""
    if isinstance(source, Profile):
        return source
    check_source(source)
    path = _own_path(os.environ.get("PLACER_HOME")) if source is None else str(locate(source)[0])
    try:
        status = os.stat(path)  # noqa: PTH116 - on every repeated call, and a Path costs five times as much
    except (OSError, ValueError):
        return load(source)  # nothing there: the loader knows what to say
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    cached = _loaded.get(path)
    if cached is None or cached[0] != stamp:
        cached = _loaded[path] = (stamp, load(source))
    return cached[1]


@functools.cache
def _own_path(home: str | None) -> str:
    """This machine's profile; ``home`` is what it depends on."""
    return str(default_path())


def check_source(source: object) -> None:
    """TypeError for what cannot name a profile."""
    if not isinstance(source, (Profile, str, os.PathLike, type(None))):
        raise TypeError(f"profile must be a path, a name, a Profile or None, not {source!r}")


def check_name(source: object) -> None:
    """TypeError for what cannot name a profile, ValueError for a name that no profile has. A file may be missing."""
    check_source(source)
    if isinstance(source, str) and not _is_path(source) and source not in (*imported(), *shipped()):
        raise ValueError(_unnamed(source))


def save(profile: Profile, path: str | os.PathLike[str] | None = None) -> Path:
    """Write a profile (None: this machine's file) and return where. Old content stays until the new one is complete.

    Raises ProfileError if the file cannot be written or is something else than a profile, or if the profile would not
    be accepted by ``load`` (a NaN, a list of the wrong length): a file that cannot be read back is never written.
    """
    target = default_path() if path is None else Path(path)
    check_target(target)
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


def locate(source: str | os.PathLike[str] | None) -> tuple[Path, str]:
    """The file ``load`` would read for ``source``, and what to call it; whether it exists is not checked."""
    if source is None:
        path = default_path()
        return path, str(path)
    text = os.fspath(source)
    if _is_path(source):
        return Path(text), text
    users_file = named_path(text)
    return (users_file if users_file.exists() else shipped_folder() / users_file.name), text


def _is_path(source: str | os.PathLike[str]) -> bool:
    separators = {os.sep, os.altsep or os.sep, "/"}
    return not isinstance(source, str) or source.endswith(SUFFIXES) or any(mark in source for mark in separators)


def _unnamed(name: str) -> str:
    names = ", ".join(sorted({*imported(), *shipped()})) or "none"
    return f"no profile is called {name!r} (there is: {names}); list them with: placer profile list"


def _missing(source: str | os.PathLike[str] | None, path: Path) -> str:
    if source is None:
        return f"this machine is not calibrated (no {path}); run: placer calibrate"
    if path.parent == shipped_folder():
        return _unnamed(os.fspath(source))
    quoted = shlex.quote(str(path))
    return f"no profile at {path}; write one with: placer calibrate --output {quoted}"
