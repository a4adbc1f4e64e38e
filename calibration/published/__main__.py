"""``python -m placer.calibration.published DATA``."""

import sys
from pathlib import Path

from placer.calibration.published.fit import main

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m placer.calibration.published DATA\nDATA is the folder of the published measurements")
    main(Path(sys.argv[1]))
