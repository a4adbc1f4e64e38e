"""Half a second of reading a CPU's speed: what other programs do to it is bounded, and shows."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from placer.machine import children_seconds, measure_speeds, speed
from placer.machine.speed import Moment, moment, others_share


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


#: Of a reading of a second on two cores: what the thread waited for a core, what others had of each core (where the
#: system tells), and the share that is told.
DISTURBED = [
    (0.0, (0.0, 0.0), 0.0),
    (0.4, (0.0, 0.0), 0.4),
    (0.1, (0.5, 0.5), 0.5),
    (0.1, (0.0, 0.5), 0.25),
    (0.0, (-0.3, 0.0), 0.0),  # the system counts in ticks
    (-0.1, (9.0, 9.0), 1.0),
    (0.4, (), 0.4),
    (0.4, (0.5,), 0.4),  # it shows the host's cores in place of these
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("waited", "others", "share"), DISTURBED)
def test_what_others_took_is_the_larger_of_what_the_cores_and_the_thread_say(
    threads: int, waited: float, others: tuple[float, ...], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second half of a reading on two threads is on one of them, which tells what it waited for."""
    began = Moment(10.0, 1.0, 2.0, (100.0, 200.0))
    half = Moment(10.5, 1.0, 3.0, (100.5, 200.5))
    running = (1.0 if threads == 1 else 0.5) * (1.0 - waited)
    busy = tuple(start + 0.5 + taken for start, taken in zip((100.0, 200.0), others, strict=False))
    ended = Moment(11.0, 1.0 + running, 3.0, busy)
    times = iter([began, ended] if threads == 1 else [began, half, ended])
    monkeypatch.setattr(speed, "moment", lambda: next(times))
    monkeypatch.setattr(speed, "_times", lambda run: [1e-3])
    torch.set_num_threads(threads)
    assert measure_speeds().others_share == pytest.approx(share)


@pytest.mark.parametrize(("cores", "share"), [((0.75, 0.75), 0.25), ((), 0.4)])
def test_beside_own_work_the_system_tells_before_the_thread_does(cores: tuple[float, ...], share: float) -> None:
    began = Moment(10.0, 1.0, 2.0, (0.0,) * len(cores))
    assert others_share(began, Moment(11.0, 1.6, 3.0, cores)) == pytest.approx(share)


@pytest.mark.parametrize("error", [FileNotFoundError("/proc/stat"), PermissionError(), RuntimeError(), IndexError()])
def test_a_system_that_does_not_tell_is_no_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise error

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert moment().cores == ()


def test_what_a_processs_children_compute_is_known_while_they_run_and_after() -> None:
    burn = "import time; print(flush=True)\nwhile time.process_time() < 0.3: pass"
    began = children_seconds()
    child = subprocess.Popen([sys.executable, "-c", f"{burn}\nprint(flush=True); input()"], stdin=-1, stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.readline()
    assert children_seconds() - began >= 0.25  # while it runs
    child.communicate(b"\n")
    assert children_seconds() - began >= 0.25  # and when it has ended
