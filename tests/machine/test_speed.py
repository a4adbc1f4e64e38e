"""Half a second of reading a CPU's speed: what other programs do to it is bounded, and shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from placer.machine import measure_speeds, speed
from placer.machine.speed import Moment, moment, taken_share, waited_share


def test_threads_that_wait_for_the_scheduler_do_not_count_as_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several threads the small step takes a scheduler's turn for each loop; on one it takes what it takes."""
    threads = torch.get_num_threads()
    if threads == 1:
        pytest.skip("torch has one thread here")

    def times(run: Callable[[], object]) -> list[float]:
        run()
        return [0.1 if torch.get_num_threads() > 1 else 1e-3]

    monkeypatch.setattr(speed, "_times", times)
    found = measure_speeds()
    assert found.small_step_seconds == pytest.approx(2e-3)
    assert found.region_seconds == pytest.approx(5e-6 * threads)
    assert torch.get_num_threads() == threads


def test_reading_draws_no_random_numbers_and_leaves_torch_as_it_is() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with torch.no_grad():
        found = measure_speeds()
        assert not torch.is_grad_enabled()
    assert all(value > 0.0 for name, value in vars(found).items() if name not in ("region_seconds", "others_share"))
    assert torch.get_num_threads() == found.threads
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert before[2] == np.random.get_state()[1].tolist()  # noqa: NPY002


def moments(threads: int, waited: float, taken: float) -> Iterator[Moment]:
    """Of a reading of a second on two cores, the second half of it on one thread."""
    began = Moment(0.0, 0.0, 0.0, (0.0, 0.0))
    half = Moment(0.5, 0.0, 1.0, (0.5, 0.5))
    running = 1.0 if threads == 1 else 0.5
    ended = Moment(1.0, running * (1.0 - waited), 1.0, (0.5 + taken, 0.5 + taken))
    return iter([began, ended] if threads == 1 else [began, half, ended])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("waited", "taken", "share"), [(0.0, 0.0, 0.0), (0.4, 0.0, 0.4), (0.1, 0.5, 0.5)])
def test_what_others_took_is_the_larger_of_what_the_cores_and_the_thread_say(
    threads: int, waited: float, taken: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = moments(threads, waited, taken)
    monkeypatch.setattr(speed, "moment", lambda: next(times))
    monkeypatch.setattr(speed, "_times", lambda run: [1e-3])
    torch.set_num_threads(threads)
    assert measure_speeds().others_share == pytest.approx(share)


# --- what other programs take of the cores ----------------------------------------------------------------------------

BEGAN = Moment(wall=10.0, thread=1.0, process=2.0, cores=(100.0, 200.0))


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
