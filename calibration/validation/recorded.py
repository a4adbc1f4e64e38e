"""What predicts a record: its calibration, which is kept as a journal and fitted by the code as it is.

A fit would be of the code of its day. So a record's folder has ``calibration.journal.xz`` in place of a profile.
Fitting it takes 10 to 20 seconds; the result is kept in placer's data folder until the journal or the code changes.
Records that are older than journals have the profile itself, packed (``profile.json.xz``).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

import placer
from placer import profile as profiles
from placer.calibration.build import build
from placer.calibration.measuring.journal import Journal
from placer.errors import CalibrationError, ProfileError
from placer.files import replace_file
from placer.profile import Profile

#: The measurements of a record's folder, and its journal, which is packed when it is complete.
MEASUREMENTS, JOURNAL = "measurements.json", "calibration.journal"
PACKED = ".xz"
#: Fits that are kept of a journal: several checkouts may have a code of their own.
KEPT_FITS = 4
#: What a fit depends on beside the code: packages, and the kinds of files of placer.
_PACKAGES, _SUFFIXES = ("torch", "numpy", "scikit-learn"), (".py", ".csv", ".json")


def measurements_of(path: Path) -> Path:
    """The file of a record that is named by its folder or by itself."""
    return path / MEASUREMENTS if path.is_dir() else path


def journal_in(folder: Path) -> Path | None:
    """The journal of a record's calibration; None where the record has none."""
    return next((path for path in (folder / (JOURNAL + PACKED), folder / JOURNAL) if path.is_file()), None)


def is_journal(source: Profile | str | Path) -> bool:
    """Whether what names a profile is a journal's file, packed or not."""
    return not isinstance(source, Profile) and str(source).removesuffix(PACKED).endswith(Path(JOURNAL).suffix)


def own_fit(folder: Path) -> Profile | None:
    """What the code as it is fits to the journal of a record's calibration; None where the record has none.

    Raises CalibrationError where it holds too little or is no journal.
    """
    journal = journal_in(folder)
    return None if journal is None else replace(fitted(journal), name=f"fit of {journal.name}")


def kept_profile(folder: Path, name: str) -> Profile | None:
    """The profile of that file name that lies in a record's folder, packed or not; None where there is none.

    Raises ProfileError where it cannot be read.
    """
    paths = (folder / name, folder / (name + PACKED))
    found = next((path for path in paths if name and path.is_file()), None)
    return None if found is None else profiles.load(found)


def pack(journal: Path) -> Path:
    """Replace a complete journal by its packed form, and say where that is."""
    packed = journal.with_name(journal.name + PACKED)
    replace_file(packed, lzma.compress(journal.read_bytes(), preset=9))
    journal.unlink()
    return packed


def fitted(journal: Path) -> Profile:
    """What the code as it is fits to a journal, packed or not.

    Raises CalibrationError where it holds too little or is no journal, OSError where it cannot be read.
    """
    raw = journal.read_bytes()
    path = fits_folder() / f"{hashlib.sha256(raw).hexdigest()[:16]}-{code_digest()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        try:
            found = profiles.load(path)
        except ProfileError:  # not there, or not of this format
            with unpacked(journal) as (observed, fingerprint):
                profiles.save(build(observed, fingerprint, interrupted=False), path)
            found = profiles.load(path)
    _forget_old_fits(path)
    return found


def fits_folder() -> Path:
    """Where fits of journals are kept."""
    return profiles.data_home() / "fits"


@cache
def code_digest() -> str:
    """What names the code and the tables of placer, and the versions of the packages that a fit depends on."""
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in _PACKAGES).encode())
    # Of the files themselves, not of links to them. ``calibration`` stands within placer where that is installed.
    for root in (Path(placer.__file__).resolve().parent, Path(__file__).resolve().parents[1]):
        for path in sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES):
            if "records" not in path.relative_to(root).parts:
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def unpacked(journal: Path) -> Iterator[tuple[Journal, dict[str, Any]]]:
    """What a journal holds, packed or not, and the fingerprint of its machine.

    Raises CalibrationError where it is no journal, OSError where it cannot be read.
    """
    raw = journal.read_bytes()
    try:
        lines = lzma.decompress(raw) if journal.suffix == PACKED else raw
        fingerprint = json.loads(lines.partition(b"\n")[0])["fingerprint"]
    except (lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise CalibrationError(f"{journal} is no journal of a calibration: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / JOURNAL
        plain.write_bytes(lines)
        yield Journal(plain, fingerprint, existing=True), fingerprint


def _forget_old_fits(newest: Path) -> None:
    """Remove the oldest fits of the same journal, of which every change of the code makes one."""
    journal = newest.stem.partition("-")[0]
    others = sorted(newest.parent.glob(f"{journal}-*.json"), key=lambda path: path.stat().st_mtime)
    for old in others[:-KEPT_FITS]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)
