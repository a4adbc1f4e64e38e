"""The real steps that are timed, alone and several of them in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any, cast

import torch
from torch import Tensor, nn

from placer.calibration.measuring.timing import Clock, Ends, Timer, percentile
from placer.errors import TimerError
from placer.nest import map_nest, tensors
from placer.placement import move
from placer.workload import Workload, loss_of, optimizer_classes, outputs_stay

#: So small that thousands of timed steps leave the weights where they are: NaN, infinities and denormals have other
#: speeds than numbers. The cost of an update does not depend on it.
LEARNING_RATE = 1e-7


def make_optimizer(model: nn.Module, name: str, *, fused: bool = False) -> torch.optim.Optimizer:
    """The named optimizer with its own defaults over the trainable parameters; ``fused``: it updates in one kernel."""
    kind = cast(Any, optimizer_classes()[name])
    settings = {"fused": True} if fused else {}
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = kind(parameters, lr=LEARNING_RATE, **settings)
    return optimizer


class Step:
    """Calling it runs one step: the batch to the device, forward, loss, backward and update; or forward and copy out.

    The model must be on ``device`` already. In train mode ``optimizer`` may be None: then every gradient is cleared.
    Steps of several batch sizes may share one. ``prepare`` sets the model's mode, outside of what is timed. Forward and
    loss run in mixed precision where the workload says so. A training step returns the ``Ends`` of its phases by
    ``clock``. Without ``copies_out`` the output stays on the device.

    ``placer.decision`` has a step of its own for ``measure="unsure"``: it copies the user's model with its optimizer,
    and waits for the device. Here every call that is not the workload's would count as its time.
    """

    def __init__(
        self,
        workload: Workload,
        device: str,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        clock: Clock = time.perf_counter,
        copies_out: bool = True,
    ) -> None:
        self.model = cast(nn.Module, workload.model)
        self.training = workload.mode == "train"
        self.device = torch.device(device)
        self.optimizer = optimizer
        self.loss: Callable[[Any], Any] = workload.loss or partial(loss_of, loss=None)
        self.autocast = workload.autocast
        self.clock = clock
        on_cpu = self.device.type == "cpu"
        self.pinned = workload.data == "pinned" and not on_cpu
        batch: Any = (workload.args, workload.kwargs)
        if workload.data == "device":
            batch = move(batch, self.device)
        elif self.pinned:
            batch = map_nest(methodcaller("pin_memory"), batch)
        self.batch = batch
        self._cpu = torch.device("cpu")
        # A batch that is there already is not searched for tensors every time: that would be the harness, not the step.
        self._stays = on_cpu or workload.data == "device"
        self._brings_back = copies_out and not on_cpu and not outputs_stay(workload.data, workload.outputs)
        #: What no optimizer clears. A gradient left over would be added to, which is another op than the first write.
        self._leaves: list[Tensor] = [tensor for tensor in tensors(batch) if tensor.requires_grad]
        if optimizer is None:
            self._leaves += self.model.parameters()

    def prepare(self) -> None:
        self.model.train(self.training)

    def __call__(self) -> Ends | None:
        # Few calls of its own: each would be a hundredth of a step of five microseconds.
        args, kwargs = self.batch if self._stays else move(self.batch, self.device, non_blocking=self.pinned)
        if self.training:
            return self._train(args, kwargs)
        with torch.no_grad():
            output = self.model(*args, **kwargs) if self.autocast is None else self._mixed(args, kwargs)
        if self._brings_back:
            for tensor in tensors(output):
                tensor.to(self._cpu)
        return None

    def _train(self, args: Any, kwargs: Any) -> Ends:
        for leaf in self._leaves:
            leaf.grad = None
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        cleared = self.clock()
        loss = self.loss(self.model(*args, **kwargs)) if self.autocast is None else self._mixed(args, kwargs)
        forward = self.clock()
        loss.backward()
        backward = self.clock()
        if self.optimizer is not None:
            self.optimizer.step()
        return Ends(cleared, forward, backward)

    def _mixed(self, args: Any, kwargs: Any) -> Any:
        """The loss in training, else the output, in mixed precision."""
        with torch.autocast(self.device.type, dtype=self.autocast):
            output = self.model(*args, **kwargs)
            return self.loss(output) if self.training else output


#: Steps timed per round at most: more add nothing.
MAX_STEPS_PER_ROUND = 200
#: An accelerator is waited for once per block of at least this many seconds; a wait costs about 10 microseconds.
BLOCK_SECONDS = 2e-3
#: Steps longer than this (seconds) fill the caches themselves: no untimed step runs after another workload's.
COLD_SECONDS = 0.3
MIN_ROUNDS = 3


@dataclass(frozen=True)
class Measurement:
    """Seconds per step: median, 10th and 90th percentile over all rounds; ``count`` steps were timed.

    ``repeatability``: the ratio, 1 or more, between the medians of the first and the second half of the rounds.
    """

    median: float
    p10: float
    p90: float
    count: int
    repeatability: float


@dataclass
class _Turn:
    """A step with what is to be timed of it in each round, and what was: seconds of a step."""

    step: Step
    timer: Timer
    rounds: int = 0
    blocks: int = 1
    block: int = 1
    estimate: float = 0.0
    times: list[list[float]] = field(default_factory=list)
    failure: Exception | None = None

    def attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do it. A step that fails (no memory, a bug of its own) must not end the run: it has no more rounds."""
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001
            self.failure, self.rounds = error, 0

    def plan(self, rounds: int, seconds: float) -> None:
        """Warm up (the first calls select kernels and grow allocators), and spread the time over the rounds."""
        self.step.prepare()
        self.step()
        self.timer.wait()
        self.estimate = self.seconds()
        for _ in range(4):
            if self.estimate < BLOCK_SECONDS * 5:
                self.estimate = min(self.estimate, self.seconds())
        if self.estimate <= 0:
            raise TimerError("a whole step took no time by the clock")
        self.rounds = rounds if self.estimate * rounds <= seconds else MIN_ROUNDS
        wanted = max(1, min(MAX_STEPS_PER_ROUND, int(seconds / self.rounds / self.estimate)))
        if self.timer.synchronize is not None:
            self.block = min(math.ceil(BLOCK_SECONDS / self.estimate), MAX_STEPS_PER_ROUND)
        self.blocks = math.ceil(wanted / self.block)

    def round(self) -> None:
        self.step.prepare()
        for _ in range(self.block if self.estimate < COLD_SECONDS else 0):
            self.step()
        self.timer.wait()
        self.times.append([self.seconds() for _ in range(self.blocks)])

    def seconds(self) -> float:
        """Seconds per step over a block of steps."""
        return self.timer.seconds(self.block) / self.block

    def summary(self) -> Measurement | Exception:
        half = len(self.times) // 2
        first, second = (statistics.median(chain(*some)) for some in (self.times[:half], self.times[half:]))
        if not min(first, second) > 0:
            return TimerError("a timed step took no time by the clock")
        ordered = sorted(chain(*self.times))
        return Measurement(
            median=percentile(ordered, 0.5),
            p10=percentile(ordered, 0.1),
            p90=percentile(ordered, 0.9),
            count=len(ordered) * self.block,
            repeatability=max(first, second) / min(first, second),
        )


def measure_interleaved(
    steps: Sequence[Step],
    *,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
    rounds: int = 5,
    seconds: float = 1.5,
) -> list[Measurement | Exception]:
    """Warm every step up, then time them in ``rounds`` turns, about ``seconds`` per step in all.

    A step too long for that is timed once in each of 3 rounds, which is the least. The results are in the order of
    ``steps``; one that raised gives its exception instead, and does not disturb the others.
    """
    turns = [_Turn(step, Timer(step, synchronize, clock)) for step in steps]
    for turn in turns:
        turn.attempt(turn.plan, rounds, seconds)
    for number in range(rounds):
        for turn in turns:
            if number < turn.rounds:
                turn.attempt(turn.round)
    return [turn.failure or turn.summary() for turn in turns]
