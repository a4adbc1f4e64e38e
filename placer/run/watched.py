"""What is known of a model that a script runs: its inputs, a step on them, and its steps in time."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

import torch
from torch import Tensor, nn

from placer.tracing import Trace
from placer.workload import Data, Workload

#: Times between steps that are kept, the newest: enough for a median.
RECENT = 1000
#: The share of runs, or of a turn of the loop, that stands for all of them.
MOSTLY = 0.9


@dataclass
class Inputs:
    """One shape of inputs: how often it came, how often as the same tensor as the time before, and a step on it.

    ``learning`` tells whether gradients were wanted, ``plain`` whether all of it is tensors, by position. ``workload``
    holds nothing of the script's. Without a ``trace``, ``refused`` says why there is none, once that was tried.
    ``larger`` is the trace of a step with a larger batch, for advice, where it was quick to get.
    """

    learning: bool
    autocast: torch.dtype | None
    plain: bool
    count: int = 0
    same: int = 0
    workload: Workload | None = None
    trace: Trace | None = None
    larger: Trace | None = None
    refused: str = ""

    @property
    def data(self) -> Data:
        """A tensor that comes again and again lives where the model is; others are new batches."""
        return "device" if self.count > 1 and self.same == self.count - 1 else "host"

    @property
    def tried(self) -> bool:
        """Whether a step on them was traced, or could not be."""
        return self.trace is not None or bool(self.refused)


@dataclass
class Step:
    """The calls of a model since the last step of its optimizer, and when the last one was that learns."""

    called: float | None = None
    learning: int = 0
    others: int = 0


@dataclass
class Trained:
    """The models that an ``optimizer`` trains, of the first ``known`` ones, and how many steps it has made."""

    optimizer: weakref.ref[torch.optim.Optimizer]
    models: list[WatchedModel] = field(default_factory=list)
    known: int = 0
    steps: int = 0


@dataclass
class WatchedModel:
    """A model, or several of one architecture (``alike``), and what they ran on.

    ``module`` is the newest of them, if it still lives. ``inputs`` are by whether gradients were wanted, and the
    shapes. ``steps`` are those of its optimizers (``looked_steps``: while calls were looked at), ``ends`` when the
    newest of them ended; ``recorded_steps`` is how many there were when the history was told of them. Of steps that
    were looked at, ``loop`` has the seconds from one to the next, ``inside`` how many of them went by from a call of
    the model to the end of its optimizer's step, ``waits`` how many waiting for batches of a ``DataLoader``, and
    ``busy`` how many with any model in training.
    ``batches`` are how many of these there had been at the first and at the newest call that was looked at, and
    ``workers`` loaded the newest.
    """

    name: str
    device: str
    module: weakref.ref[nn.Module]
    alike: int = 0
    optimizer: weakref.ref[torch.optim.Optimizer] | None = None
    inputs: dict[Hashable, Inputs] = field(default_factory=dict)
    steps: int = 0
    looked_steps: int = 0
    recorded_steps: int = 0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT + 1))
    loop: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    waited: float = 0.0
    busy_before: float = 0.0
    batches: tuple[int, int] = (0, 0)
    workers: int = 0
    step: Step = field(default_factory=Step)
    last_tensor: weakref.ref[Tensor] | None = None

    @property
    def mode(self) -> str:
        """A model that was ever trained is asked about for training."""
        return "train" if any(inputs.learning for inputs in self.inputs.values()) else "infer"

    @property
    def of_mode(self) -> list[Inputs]:
        """What it learnt on, if it ever did, else all that it ran on."""
        learning = self.mode == "train"
        return [inputs for inputs in self.inputs.values() if inputs.learning == learning]

    @property
    def runs(self) -> int:
        """How often it ran on those."""
        return sum(inputs.count for inputs in self.of_mode)

    @property
    def usual(self) -> Inputs:
        """The inputs it ran on most, of those with a trace if there is one."""
        return max(self.of_mode, key=lambda inputs: (inputs.trace is not None, inputs.count))

    @property
    def runs_per_step(self) -> int:
        """How often it ran for one step of its optimizer."""
        return max(round(self.runs / self.looked_steps), 1) if self.looked_steps else 1

    @property
    def between(self) -> list[float]:
        """Seconds from one of the newest steps to the next."""
        return [after - before for before, after in zip(self.ends, islice(self.ends, 1, None), strict=False)]

    @property
    def seconds(self) -> float | None:
        """Median wall time from one step of its optimizer to the next; None where there were not two."""
        return median(self.between) if len(self.ends) > 1 else None

    @property
    def real_steps(self) -> list[float]:
        """Seconds of steps as ``placer.choose`` prices them, on the usual inputs; none where the loop does not tell.

        On the CPU they are those from a call of the model to the end of its optimizer's step. An accelerator may still
        be at work then: there it is a whole turn of the loop that counts, if nearly all of it goes by in the model.
        """
        if not self.inside or self.runs_per_step > 1 or self.usual.count < MOSTLY * self.runs:
            return []
        if self.device == "cpu":
            return self.inside
        return self.between if self.seconds and median(self.inside) >= MOSTLY * self.seconds else []

    def wants_trace(self, inputs: Inputs) -> bool:
        """Whether a step on these inputs says more than those that were traced."""
        if inputs.tried or (self.mode == "train" and not inputs.learning):
            return False
        return inputs.count > max((other.count for other in self.of_mode if other.tried), default=0)

    def trained_by(self, optimizer: torch.optim.Optimizer) -> None:
        """What was traced before its optimizer was known is traced again with it."""
        if self.optimizer is None:
            self.optimizer = weakref.ref(optimizer)
            for inputs in self.inputs.values():
                if inputs.learning:
                    inputs.trace, inputs.larger, inputs.refused = None, None, ""

    def stepped(self, now: float, waited: float, busy: float, *, looked: bool) -> None:
        """Its optimizer has made a step; ``looked``: all calls since the last one were looked at.

        ``waited`` and ``busy`` are the seconds so far that the script has waited for batches, and trained any model.
        """
        if looked:
            step, self.step = self.step, Step()
            self.looked_steps += 1
            if self.ends and step.called is not None and not step.others:
                whole = now - self.ends[-1]
                self.loop.append(whole)
                self.inside.append(min(step.learning * (now - step.called), whole))
                self.waits.append(min(waited - self.waited, whole))
                self.busy.append(min(busy - self.busy_before, whole))
        self.waited, self.busy_before = waited, busy
        self.steps += 1
        self.ends.append(now)
