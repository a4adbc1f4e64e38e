"""What hangs is ended, with everything it started, and a device that no longer works is told from a failed probe."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from placer.calibration.measuring import faults
from placer.calibration.measuring.faults import BrokenDeviceError, HungError, check, time_limit

posix = pytest.mark.skipif(os.name != "posix", reason="alarms and process groups are POSIX's")


@posix
def test_what_hangs_in_this_process_is_left_however_often_it_swallows_the_error() -> None:
    def stubborn() -> None:
        with contextlib.suppress(HungError):
            time.sleep(1000)
        time.sleep(1000)

    with pytest.raises(HungError, match=r"the loop did not come back within 0\.1 s"), time_limit(0.1, "the loop"):
        stubborn()


@posix
def test_an_alarm_of_somebody_else_is_put_back() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    theirs = signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        with time_limit(100.0, "quick"):
            pass
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with time_limit(100.0, "as long as the alarm"):
            time.sleep(0.1)  # theirs is due earlier: it rings, and the limit stays away
        assert rang == [1]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *theirs)


@pytest.mark.parametrize("error", [RuntimeError("device-side assert\nmore"), TypeError("no")])
def test_a_device_that_fails_is_broken_for_a_reason(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(device: str) -> None:
        raise error

    check("cpu")  # one that works passes
    monkeypatch.setattr(faults, "synchronize", failing)
    with pytest.raises(BrokenDeviceError, match=f"^{type(error).__name__}: {str(error).splitlines()[0]}$"):
        check("cpu")
