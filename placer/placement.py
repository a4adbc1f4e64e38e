"""The answer of ``choose``: where the work goes, and the means to put it there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from placer import history
from placer.decision import Decision
from placer.errors import PlacerError
from placer.nest import map_nest
from placer.prediction import Prediction

if TYPE_CHECKING:
    from placer.explanation import Explanation

#: Step times kept in memory.
RECENT_STEPS = 1000
#: On an accelerator every this many steps waits for the device, so that the time of the steps between is real.
SYNC_EVERY = 32
#: The first steps warm up (allocation, kernel selection) and are not recorded.
WARM_UP_STEPS = 3
#: Seconds of stepping before the first write of observed step times into the history file, and between later ones.
FIRST_RECORD_SECONDS = 1.0
RECORD_EVERY_SECONDS = 30.0


class StepTimes:
    """Real step times seen through ``Placement.step``, in seconds. ``clock`` is injectable for tests."""

    def __init__(
        self,
        device: str,
        predicted_seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.device = device
        self.predicted_seconds = predicted_seconds
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.seen = 0
        self._clock = clock
        self._asynchronous = torch.device(device).type != "cpu"
        self._next_record: float | None = None

    def median(self) -> float | None:
        """Median seconds of the recent steps, None before any were recorded."""
        return median(self.recent) if self.recent else None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time the body. An accelerator is waited for before and after, so only one step in ``SYNC_EVERY`` is."""
        self.seen += 1
        timed = self.seen > WARM_UP_STEPS and (not self._asynchronous or self.seen % SYNC_EVERY == 0)
        if not timed:
            yield
            return
        synchronize(self.device)
        start = self._clock()
        yield
        synchronize(self.device)
        now = self._clock()
        self.recent.append(now - start)
        self._record(now)

    def _record(self, now: float) -> None:
        if self._next_record is None:
            self._next_record = now + FIRST_RECORD_SECONDS
        if now >= self._next_record:
            self._next_record = now + RECORD_EVERY_SECONDS
            history.record(
                {
                    "kind": "steps",
                    "device": self.device,
                    "step_seconds": self.median(),
                    "predicted_seconds": self.predicted_seconds,
                    "steps_seen": self.seen,
                }
            )


class Placement:
    """Where a workload runs, why, and how sure that is.

    ``predictions`` maps device names to a ``Prediction`` and is empty when nothing could be predicted; ``confidence``
    is None then. ``threads`` is the number of CPU threads the choice was made for.
    """

    def __init__(
        self,
        decision: Decision,
        predictions: Mapping[str, Prediction] | None = None,
        *,
        pinned: bool = False,
        explain: Callable[[], Explanation] | None = None,
    ) -> None:
        self.decision = decision
        self.predictions: Mapping[str, Prediction] = predictions or {}
        self._pinned = pinned
        self._explain = explain

    def __repr__(self) -> str:
        return f"Placement(device={self.device!r}, confidence={self.confidence}, reason={self.reason!r})"

    @property
    def device(self) -> str:
        """The chosen device's name, as torch takes it and as ``predictions`` is keyed."""
        return self.decision.device

    @property
    def threads(self) -> int:
        return self.decision.threads

    @property
    def confidence(self) -> float | None:
        return self.decision.confidence

    @property
    def reason(self) -> str:
        return self.decision.reason

    @cached_property
    def times(self) -> StepTimes:
        """What ``step`` has seen."""
        predicted = self.predictions.get(self.device)
        return StepTimes(self.device, None if predicted is None else predicted.step_seconds)

    def to(self, x: Any) -> Any:
        """``x`` with every tensor in it on the device: a tensor, module or any nest; other leaves stay as they are."""
        return move(x, torch.device(self.device), non_blocking=self._pinned)

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        """The batches of ``loader``, on the device. On the CPU this is ``loader`` itself."""
        if torch.device(self.device).type == "cpu":
            return loader
        return _MovedBatches(self, loader)

    def step(self) -> AbstractContextManager[None]:
        """A context manager around one real step: records how long it takes (see ``times``)."""
        return self.times.step()

    def explain(self) -> Explanation:
        """Why, layer by layer. Raises PlacerError when nothing was predicted, with the reason."""
        if self._explain is None:
            raise PlacerError(f"there is no prediction to explain: {self.reason}")
        return self._explain()


class _MovedBatches:
    """A loader whose batches arrive on the device; can be iterated and measured as often as the loader can."""

    def __init__(self, placement: Placement, loader: Iterable[Any]) -> None:
        self._placement = placement
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield self._placement.to(batch)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # What else a loader offers (its data set, its sampler) stays reachable.
        return getattr(self._loader, name)


def move(x: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """A nest with its tensors, modules and movable objects on ``device``; what is there already comes back as is."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if same_device(leaf.device, device):
                return leaf
            return leaf.to(device, non_blocking=non_blocking and leaf.is_pinned())
        if isinstance(leaf, PackedSequence) and same_device(leaf.data.device, device):
            return leaf
        return leaf.to(device)

    return map_nest(moved, x)


def move_modules(modules: Iterable[nn.Module], device: torch.device) -> None:
    """Move parameters and buffers in place, as ``Module.to`` does: Parameter objects stay the same objects."""
    for module in modules:
        here = [*module.parameters(), *module.buffers()]
        if not all(same_device(tensor.device, device) for tensor in here):
            module.to(device)


def only_device(modules: Iterable[nn.Module]) -> torch.device | None:
    """The one device all parameters and buffers are on; None where there are several, or none."""
    found = {tensor.device for module in modules for tensor in (*module.parameters(), *module.buffers())}
    return found.pop() if len(found) == 1 else None


def move_optimizer(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move existing optimizer state in place, next to its parameters; the parameter groups are left as they are.

    Scalar step counters stay on the CPU unless the optimizer wants them on the device (capturable or fused), which is
    where ``load_state_dict`` leaves them too.
    """
    for group in optimizer.param_groups:
        on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if not isinstance(state, dict):
                continue
            for key, value in state.items():
                if key == "step" and isinstance(value, Tensor) and not on_device:
                    continue
                state[key] = move(value, device)


def synchronize(device: str) -> None:
    """Wait for everything issued to an accelerator, through its own device module; nothing to wait for on the CPU."""
    target = torch.device(device)
    if target.type == "cpu":
        return
    module = torch.get_device_module(target)
    if target.type == "mps":  # there is only one, and its function takes none
        module.synchronize()
    else:
        module.synchronize(target)


def same_device(a: torch.device, b: torch.device) -> bool:
    """Whether two names mean one device: ``cuda`` is ``cuda:0`` unless the process chose another as its current one."""
    if a.type != b.type:
        return False
    if a.type == "cpu" or a.index == b.index:
        return True
    # Asking for the current device creates a context; before there is one, it is number 0.
    current = torch.cuda.current_device() if a.type == "cuda" and torch.cuda.is_initialized() else 0
    return (current if a.index is None else a.index) == (current if b.index is None else b.index)
