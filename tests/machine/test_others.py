"""What other programs take of the cores: by the system's count of each core, and by a thread's own clock."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import psutil
import pytest

from placer.machine.others import Moment, moment, taken_share, waited_share

BEGAN = Moment(wall=10.0, thread=1.0, process=2.0, cores=(100.0, 200.0))
Times = namedtuple("Times", "user nice system idle iowait guest steal")


def after(thread: float, process: float, cores: tuple[float, ...]) -> Moment:
    """Half a second later; all in seconds."""
    return Moment(10.5, 1.0 + thread, 2.0 + process, cores)


@pytest.mark.parametrize(
    ("own", "busy", "taken"),
    [
        (1.0, (0.5, 0.5), 0.0),  # both cores are this process's
        (0.5, (0.5, 0.5), 0.5),  # the other one is somebody else's
        (0.25, (0.5, 0.5), 0.75),
        (0.75, (0.5, 0.2), 0.0),  # the system counts in ticks
        (0.0, (9.0, 9.0), 1.0),
    ],
)
def test_what_cores_were_busy_with_beside_this_process_went_to_others(
    own: float, busy: tuple[float, float], taken: float
) -> None:
    ended = after(own, own, (100.0 + busy[0], 200.0 + busy[1]))
    assert taken_share(BEGAN, ended) == pytest.approx(taken)


def test_a_thread_that_computes_all_along_waited_for_the_rest() -> None:
    """Its own clock tells where the system says nothing of its cores, or shows the host's in place of these."""
    for cores in ((), (100.0,)):
        ended = after(0.3, 0.3, cores)
        assert waited_share(BEGAN, ended) == pytest.approx(0.4)
        assert taken_share(BEGAN, ended) == 0.0
    assert waited_share(BEGAN, after(0.51, 0.6, ())) == 0.0


@pytest.mark.parametrize("error", [FileNotFoundError("/proc/stat"), PermissionError(), RuntimeError(), IndexError()])
def test_a_system_that_does_not_tell_is_no_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise error

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert moment().cores == ()
