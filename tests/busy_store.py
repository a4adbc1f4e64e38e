"""For some seconds, or longer on a slow machine, saves and reads one profile together with other processes like this.

Arguments of the program: the profile, files with the contents it may have, seconds. Prints counts of both.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from placer import profile as profiles
from placer.decision import history

#: Reads of a process at least: with a save before about every third of them, no process is left without one.
LEAST = 50


def keep_busy(path: Path, sources: Sequence[str], seconds: float) -> tuple[int, int]:
    """Returns the numbers of writes and reads."""
    known = [profiles.load(source) for source in sources]
    allowed = {profile.created: profile for profile in known}
    end = time.monotonic() + seconds
    writes = reads = 0
    while time.monotonic() < end or reads < LEAST:
        if random.random() < 0.3:
            profiles.save(random.choice(known), path)
            writes += 1
        found = profiles.load(path)
        right = allowed[found.created]
        assert (found.fits, found.fingerprint) == (right.fits, right.fingerprint)
        history.record({"number": reads, "padding": "x" * random.randrange(400)})
        assert all("number" in entry and "time" in entry for entry in history.last(5))
        reads += 1
    return writes, reads


def main(target: str, *rest: str) -> None:
    *sources, seconds = rest
    print(*keep_busy(Path(target), sources, float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
