"""Run as a program: for some seconds, saves and reads one profile together with other processes like this.

Arguments: the profile, the files with the contents it may have, seconds. Prints counts of writes and reads.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from placer import profile as profiles
from placer.decision import history


def main(target: str, *rest: str) -> None:
    *sources, seconds = rest
    path = Path(target)
    known = [profiles.load(source) for source in sources]
    allowed = {profile.created: profile for profile in known}
    end = time.monotonic() + float(seconds)
    writes = reads = 0
    while time.monotonic() < end:
        if random.random() < 0.3:
            profiles.save(random.choice(known), path)
            writes += 1
        found = profiles.load(path)
        right = allowed[found.created]
        assert (found.fits, found.samples, found.fingerprint) == (right.fits, right.samples, right.fingerprint)
        history.record({"number": reads, "padding": "x" * random.randrange(400)})
        assert all("number" in entry and "time" in entry for entry in history.last(5))
        reads += 1
    print(writes, reads)


if __name__ == "__main__":
    main(*sys.argv[1:])
