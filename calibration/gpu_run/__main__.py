"""``python -m placer.calibration.gpu_run``."""

from __future__ import annotations

import sys

from placer.calibration.gpu_run import main

sys.exit(main())
