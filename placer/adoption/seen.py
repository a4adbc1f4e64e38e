"""What was seen of one model: plain data and copies without values, so that nothing of the script's is kept alive."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

#: Times between steps that are kept, the newest: enough for a median.
RECENT = 1000
#: Shapes of inputs that are told apart, per model.
MOST_SHAPES = 8


@dataclass
class Steps:
    """The steps of one optimizer: how many, and the wall time between one and the next, in seconds."""

    count: int = 0
    between: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    last: float | None = None

    def add(self, now: float) -> None:
        """A step that ended at ``now``."""
        self.count += 1
        if self.last is not None:
            self.between.append(now - self.last)
        self.last = now


@dataclass
class Inputs:
    """One shape of inputs, how often it was seen, and how often it was the same tensor as the time before."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: torch.dtype | None
    count: int = 0
    same: int = 0

    @property
    def data(self) -> str:
        """A tensor that comes again and again lives where the model is; others are new batches."""
        return "device" if self.count > 1 and self.same == self.count - 1 else "host"


@dataclass
class SeenModel:
    """A model, or several of one architecture (``alike``), and what they ran on.

    ``copy`` has no values; ``refused`` says why there is none. ``module`` is the newest of them, if it still lives.
    ``runs`` are counts of runs between two steps; ``since_step`` counts them, None while nobody looks.
    """

    name: str
    device: str
    module: weakref.ref[nn.Module]
    copy: nn.Module | None = None
    refused: str = ""
    alike: int = 1
    optimizer: torch.optim.Optimizer | None = None
    steps: list[Steps] = field(default_factory=list)
    #: By whether gradients were wanted, and the shapes.
    inputs: dict[tuple[bool, Hashable], Inputs] = field(default_factory=dict)
    runs: list[int] = field(default_factory=list)
    since_step: int | None = None
    _newest: weakref.ref[Tensor] | None = None

    def ran(self, learning: bool, signed: Hashable, first: Tensor) -> Inputs | None:
        """Count a run on inputs that were seen before, of which ``first`` is a tensor; None for new ones."""
        found = self.inputs.get((learning, signed))
        again = self._newest is not None and self._newest() is first
        self._newest = weakref.ref(first)
        if found is not None:
            found.count += 1
            found.same += again
        return found

    def stepped(self) -> None:
        """Its optimizer has made a step."""
        if self.since_step:
            self.runs.append(self.since_step)
        self.since_step = 0

    @property
    def mode(self) -> str:
        """A model that was ever trained is asked about for training."""
        return "train" if any(learning for learning, _ in self.inputs) else "infer"

    @property
    def usual(self) -> Inputs:
        """The inputs it ran on most."""
        learning = self.mode == "train"
        return max((found for (key, _), found in self.inputs.items() if key == learning), key=lambda i: i.count)

    @property
    def step_count(self) -> int:
        return sum(steps.count for steps in self.steps)

    @property
    def runs_per_step(self) -> int:
        """How often it usually runs for one step of its optimizer."""
        return round(median(self.runs)) if self.runs else 1

    @property
    def seconds(self) -> float | None:
        """Median wall time from one step of its optimizer to the next; None where there were not two."""
        times = [seconds for steps in self.steps for seconds in steps.between]
        return median(times) if times else None
