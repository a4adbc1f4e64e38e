"""Times ops on accelerators whose kernels no profiler reports, by waiting for the device after every op.

Such a backend (MPS, XPU, backends from outside torch) still lets one wait for its queue. From the moment an op is
issued to an idle device until a wait for it returns, three things pass: the launch delay, the op's kernels and the wait
itself. Delay and wait are known (``rates.queueing``) and subtracted. The time until the op is issued is the host's.

Which op of the trace a timed call belongs to is found as on the CPU: one more step runs under the recorder, whose
events nest, so that a whole op (attention, an optimizer's step) gets what the ops inside it took.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring.events import Event, RawEvent, nest
from placer.calibration.measuring.matching import match
from placer.calibration.measuring.recording import raw_events, read_event, recorder_of
from placer.calibration.measuring.step_timing import OpTiming, StepTiming
from placer.calibration.measuring.stopwatch import Stopwatch
from placer.calibration.measuring.timing import Clock
from placer.nest import tensors
from placer.tracing import Trace

#: Undisturbed steps on either side of the waited ones.
LEAST_WHOLE, MOST_WHOLE = 3, 20
#: Waited steps: more do not improve the median, fewer cannot outvote a disturbed one.
LEAST_PASSES, MOST_PASSES = 3, 7
#: Name of the recorded event around a timed op.
OP_MARK = "placer::op"


def time_step_waiting(
    step: Callable[[], object], trace: Trace, *, device: str, synchronize: Callable[[], None], overhead: float,
    seconds: float, clock: Clock,
) -> StepTiming | None:  # fmt: skip
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least three steps of each).

    ``overhead``: seconds from an op's issue to the end of the wait for it, its kernels not counted. None where steps do
    not repeat the same ops.
    """
    kind = torch.device(device).type
    synchronize()
    undisturbed = Stopwatch(step, synchronize, clock, speed_probe=None).seconds
    whole = [undisturbed()]
    rounds = int(min(max(seconds / 4 / max(whole[0], 1e-6), LEAST_WHOLE), MOST_WHOLE))
    whole += [undisturbed() for _ in range(rounds)]
    calls = _waited_calls(step, kind, synchronize, seconds=seconds / 2, clock=clock)
    structure = _structure(step, kind, synchronize, clock)
    if calls is None or structure is None or [call.name for call in calls] != structure.names:
        return None
    whole += [undisturbed() for _ in range(rounds)]
    waits = structure.sums([max(call.wait - overhead, 0.0) for call in calls])
    issues = structure.sums([call.issue for call in calls])
    # Both lists hold the same events in the same order, so they match the trace alike.
    pairs = list(zip(match(trace, waits), match(trace, issues), strict=True))
    ops = tuple(OpTiming(d.call, h.device_seconds, 0, d.device_seconds) for d, h in pairs if d and h)
    whole.sort()
    median = statistics.median(whole)
    return StepTiming(
        seconds=median, spread=(whole[len(whole) * 3 // 4] - whole[len(whole) // 4]) / median, recorded_seconds=median,
        events=len(calls), ops=ops, matched=len(ops) / max(len(pairs), 1),
    )  # fmt: skip


@dataclass(frozen=True)
class _Structure:
    """The recorder's events of one step in order of their start, and the ops timed in it by name and event number."""

    raw: tuple[RawEvent, ...]
    names: list[str]
    numbers: list[int]

    def sums(self, seconds: list[float]) -> list[Event]:
        """The events, each with the sum of ``seconds`` (one number per timed op) inside it as its device time."""
        nested = nest(self.raw, dict(zip(self.numbers, seconds, strict=True)))
        return [event for event in nested if event.name != OP_MARK]


def _structure(
    step: Callable[[], object], kind: str, synchronize: Callable[[], None], clock: Clock
) -> _Structure | None:
    with (
        recorder_of([ProfilerActivity.CPU]) as recorder,
        _WaitAfterEachOp(kind, synchronize, clock, mark=True) as mode,
    ):
        step()
    events = map(read_event, raw_events(recorder))
    raw = sorted((event for event in events if event is not None), key=lambda e: (e.start_ns, -e.end_ns))
    numbers = [event.number for event in raw if event.name == OP_MARK]
    names = [call.name for call in mode.calls]
    # The mode notes a call at its end, the recorder orders events by their start. The orders agree for ops in a row,
    # not for an op that runs others through the mode again. Such a step is timed whole only.
    return _Structure(tuple(raw), names, numbers) if len(numbers) == len(names) else None


@dataclass(frozen=True, slots=True)
class _WaitedCall:
    """Seconds until an op was issued, and from there until the device was done (0.0 for what launches nothing)."""

    name: str
    issue: float
    wait: float


class _WaitAfterEachOp(TorchDispatchMode):
    """Waits after every op on a device of ``kind`` that may have launched a kernel; ``calls`` has what each took.

    With ``mark`` each op runs inside a recorder's event called ``OP_MARK``. The mode holds in autograd's threads too.
    """

    def __init__(self, kind: str, synchronize: Callable[[], None], clock: Clock, *, mark: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_WaitedCall] = []
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
        self.calls.append(_WaitedCall(func.name(), issued - start, done - issued))
        return out


def _waited_calls(
    step: Callable[[], object], kind: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock
) -> list[_WaitedCall] | None:
    """The calls of one step, each the median over several steps in about ``seconds``.

    None where the steps did not run the same ops: their calls cannot be paired then.
    """
    passes: list[list[_WaitedCall]] = []
    deadline = clock() + seconds
    while len(passes) < LEAST_PASSES or (len(passes) < MOST_PASSES and clock() < deadline):
        synchronize()
        with _WaitAfterEachOp(kind, synchronize, clock) as mode:
            step()
        passes.append(mode.calls)
    names = [call.name for call in passes[0]]
    if any([call.name for call in calls] != names for calls in passes):
        return None
    return [
        _WaitedCall(seen[0].name, statistics.median(c.issue for c in seen), statistics.median(c.wait for c in seen))
        for seen in zip(*passes, strict=True)
    ]
