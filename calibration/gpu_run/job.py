"""What a part of the run is given: where to write, which device, which networks, and until when."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path


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
        """Seconds until the deadline, 0 after it."""
        return max(self.deadline - self.clock(), 0.0)

    @property
    def kind(self) -> str:
        """The device without its index: ``cuda``."""
        return self.device.partition(":")[0]

    @property
    def index(self) -> int:
        """The device's index."""
        return int(self.device.partition(":")[2] or 0)

    def within(self, seconds: float) -> Job:
        """The same for a piece of the work that may take ``seconds``."""
        return replace(self, deadline=min(self.deadline, self.clock() + seconds))

    def wants(self, network: str) -> bool:
        """Whether a network is among those to run."""
        return not self.only or network in self.only

    def say(self, text: str) -> None:
        """Tell who watches."""
        print(text, file=sys.stderr, flush=True)
