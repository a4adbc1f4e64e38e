"""Times calls in a row on a device, for one line of a file of rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from placer import machine
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines, Question
from placer.calibration.measuring.health import cause, check, release
from placer.placement import synchronize

#: Seconds of a burst, its calls at most, and bursts of a question.
BURST, MOST_CALLS, BURSTS = 0.01, 1000, 3
#: Share of the free memory that the operands of one question may take; the rest is for results and workspaces.
MEMORY_SHARE = 0.4
#: Seconds of a call after which a series of growing sizes ends.
LONG_CALL = 0.05

#: What is timed, and what makes its operands first.
Call = Callable[[], object]
Maker = Callable[[], Call]


@dataclass(frozen=True)
class Burst:
    """Seconds per call: of the fastest burst, of the middle one, and until a call is issued. ``calls`` in a burst."""

    seconds: float
    median: float
    issue_seconds: float
    calls: int


def burst(call: Call, device: str, *, seconds: float = BURST) -> Burst:
    """Time ``call`` in bursts of about ``seconds``; it is run twice before."""

    def timed(calls: int) -> tuple[float, float]:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        issued = time.perf_counter() - start
        synchronize(device)
        return (time.perf_counter() - start) / calls, issued / calls

    call()
    synchronize(device)
    once, _ = timed(1)
    calls = int(min(max(seconds / max(once, 1e-7), 1), MOST_CALLS))
    found = [timed(calls) for _ in range(BURSTS if once < LONG_CALL else 1)]
    whole = [each for each, _ in found]
    return Burst(min(whole), statistics.median(whole), statistics.median(issued for _, issued in found), calls)


class Rates:
    """Answers questions of one family into a file, until the job's time is used."""

    def __init__(self, job: Job, lines: Lines) -> None:
        self.job = job
        self._lines = lines

    def ask(self, question: Question, make: Maker, *, needs: float = 0.0) -> bool:
        """Time what ``make`` returns, unless it is known; False where larger ones of its kind are not worth asking.

        ``needs``: bytes of its operands. What fails is written down. Raises BrokenDeviceError where the device runs
        nothing any more.
        """
        if not self.job.left:
            return False
        if question in self._lines:
            return True
        free = machine.memory(self.job.device)[0]
        if needs > MEMORY_SHARE * free:
            self._lines.fail(question, f"needs {needs:.3g} bytes, {free:.3g} are free")
            return False
        try:
            found = burst(make(), self.job.device)
        except Exception as raised:  # noqa: BLE001  a backend that refuses an op is a finding
            error = cause(raised)
        else:
            self._lines.add(question, **asdict(found))
            return found.seconds < LONG_CALL
        # Outside of the except clause, whose traceback holds the operands.
        self._lines.fail(question, error)
        release(self.job.device)
        check(self.job.device)
        return False
