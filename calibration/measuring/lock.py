"""One calibration at a time per profile: two would disturb each other, and mix their journals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from placer.errors import CalibrationError


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock beside ``target``. The system releases it when its holder ends, however that happens.

    Raises CalibrationError where another process holds it, where the place cannot be written, and where the lock is a
    symbolic link: in a folder that others may write to, it could lead anywhere.
    """
    path = target.with_suffix(".lock")
    if path.is_symlink():
        raise CalibrationError(f"{path} is a symbolic link, which is refused: remove it and run placer calibrate again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0)
        lock.acquire()
    except Timeout:
        raise CalibrationError(
            f"another calibration is writing {target}: wait until it is done, or give another file with --output"
        ) from None
    except OSError as error:
        raise CalibrationError(
            f"cannot write {path}: {error.strerror or error}; "
            "give another file (placer calibrate --output FILE) or folder (PLACER_HOME)"
        ) from error
    try:
        yield
    finally:
        # The file is removed while the lock is held. A process that opened it just before gets a lock that no third one
        # sees: at worst, two calibrations disturb each other.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()
