"""Waits for a device: once, or after each op of a step, so that every op starts on an idle device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring.timing import Clock
from placer.nest import tensors
from placer.placement import synchronize

#: Name of the recorded event around a timed op.
OP_MARK = "placer::op"
#: Steps that are run so: more do not improve the median, fewer cannot outvote a disturbed one.
LEAST_PASSES, MOST_PASSES = 3, 7


def synchronizer(device: str) -> Callable[[], None] | None:
    """A function that waits for the device's queue; None on the CPU, which has none."""
    return None if device == "cpu" else partial(synchronize, device)


@dataclass(frozen=True, slots=True)
class WaitedCall:
    """Seconds until an op was issued, and from there until the device was done (0.0 for what launches nothing)."""

    name: str
    issue: float
    wait: float


class WaitAfterEachOp(TorchDispatchMode):
    """Waits after every op on a device of ``kind`` that may have launched a kernel; ``calls`` has what each took.

    With ``mark`` each op runs inside a recorder's event called ``OP_MARK``. The mode holds in autograd's threads too.
    """

    def __init__(self, kind: str, synchronize: Callable[[], None], clock: Clock, *, mark: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[WaitedCall] = []
        self._kind = kind
        self._synchronize = synchronize
        self._clock = clock
        self._mark = mark

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default the class is wrapped to hide it from the compiler, whose import takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        around: AbstractContextManager[Any] = record_function(OP_MARK) if self._mark else nullcontext()
        kwargs = kwargs or {}
        with around:
            start = self._clock()
            out = func(*args, **kwargs)
            issued = done = self._clock()
            # A view has nothing to wait for, and an op on host tensors (an optimizer's step counter) is no kernel.
            if not func.is_view and any(t.device.type == self._kind for t in tensors((args, kwargs, out))):
                self._synchronize()
                done = self._clock()
        self.calls.append(WaitedCall(func.name(), issued - start, done - issued))
        return out


def waited_calls(
    step: Callable[[], object], kind: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock
) -> list[WaitedCall] | None:
    """The calls of one step, each the median over several steps in about ``seconds``.

    None where the steps did not run the same ops: their calls cannot be paired then.
    """
    passes: list[list[WaitedCall]] = []
    deadline = clock() + seconds
    while len(passes) < LEAST_PASSES or (len(passes) < MOST_PASSES and clock() < deadline):
        synchronize()
        with WaitAfterEachOp(kind, synchronize, clock) as mode:
            step()
        passes.append(mode.calls)
    return _medians(passes)


def _medians(passes: Sequence[Sequence[WaitedCall]]) -> list[WaitedCall] | None:
    names = [call.name for call in passes[0]]
    if any([call.name for call in calls] != names for calls in passes):
        return None
    return [
        WaitedCall(seen[0].name, statistics.median(c.issue for c in seen), statistics.median(c.wait for c in seen))
        for seen in zip(*passes, strict=True)
    ]
