"""Goes on with the record of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from placer import machine
from placer.calibration.validation import record
from placer.calibration.validation.record import Report
from placer.calibration.validation.replaying import profile_title, replay
from placer.errors import CalibrationError
from placer.profile import Profile


def resumed(output: Path | None, profile: Profile) -> Report:
    """An empty report, or the one at ``output`` beside predictions of this profile.

    Raises CalibrationError if that was measured on another machine, or cannot be read.
    """
    here = machine.fingerprint()
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    fresh = Report(created=now, fingerprint=here, profile=profile_title(profile))
    if output is None or not output.exists():
        return fresh
    found = record.load(output)
    # How many threads the process has does not matter: every cell says its own.
    changed = machine.differences({**found.fingerprint, "threads": here["threads"]}, here, ())
    if changed:
        raise CalibrationError(
            f"{output} was measured on another machine or set-up ({'; '.join(changed)}); give another --output"
        )
    # A network may have been skipped for a package that is installed by now.
    found = replace(found, skipped={})
    return found if found.profile == fresh.profile else replay(found, profile)
