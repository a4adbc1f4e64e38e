"""What a part of the run is given: where to write, which device, which networks, and until when."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring.health import BrokenDeviceError, cause
from placer.calibration.measuring.watchdog import time_limit

#: Seconds more that a piece of the work may take: it looks at the time between two measurements only.
SLACK = 2.0


@dataclass(frozen=True)
class Job:
    """``deadline`` is on ``clock``. ``only``: names of the networks to run; empty for all."""

    folder: Path
    device: str
    deadline: float
    only: tuple[str, ...] = ()
    clock: Callable[[], float] = time.perf_counter

    @property
    def left(self) -> float:
        return max(self.deadline - self.clock(), 0.0)

    @property
    def kind(self) -> str:
        """The device without its index: ``cuda``."""
        return self.device.partition(":")[0]

    @property
    def index(self) -> int:
        return int(self.device.partition(":")[2] or 0)

    @contextlib.contextmanager
    def piece(self, seconds: float, lines: Lines, name: str) -> Iterator[Job]:
        """The job for a piece of the work that may take ``seconds``. One that fails is written down, and the next runs.

        Raises BrokenDeviceError where the device runs nothing any more.
        """
        limited = replace(self, deadline=min(self.deadline, self.clock() + seconds))
        try:
            with time_limit(limited.left + SLACK, name):
                yield limited
        except BrokenDeviceError:
            raise
        except Exception as error:  # noqa: BLE001  one piece that fails must not cost the others
            lines.fail({"what": name}, cause(error))

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
