"""choose and what it returns work in data loader workers, forked processes, threads and notebooks."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import placer
from placer import profile
from placer.profile.profile import Profile
from placer.tracing import child, trace_here, tracer
from placer.workload import make_workload


@pytest.fixture(autouse=True)
def _calibrated(handmade_profile: Profile) -> None:
    """Also for one thread, which is what workers of a loader get."""
    cpu = handmade_profile.fit("cpu")
    fits = {fit.threads: fit for fit in (cpu, dataclasses.replace(cpu, threads=1))}
    profile.save(dataclasses.replace(handmade_profile, fits=tuple(fits.values())))


def net(units: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 1))


class Asking(Dataset[torch.Tensor]):
    """A data set that uses a placement, and asks for another one, where it is read."""

    def __init__(self, placement: placer.Placement) -> None:
        self.placement = placement

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = placer.choose(net(index + 5), (3, 4), devices="cpu", move=False)
        with self.placement.step():
            return self.placement.to(torch.tensor([found.predictions["cpu"].step_seconds]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers_can_ask_and_use_a_placement(context: str) -> None:
    placement = placer.choose(net(), (3, 4), devices="cpu")
    loader = DataLoader(Asking(placement), num_workers=1, multiprocessing_context=context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
        assert all(float(batch) > 0 for batch in loader)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_in_the_middle_of_a_decision_is_not_stuck() -> None:
    held, done = threading.Event(), threading.Event()

    def decide() -> None:
        with tracer._one_at_a_time:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=decide)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if trace_here(make_workload(net(), (3, 4))).calls else 2
        finally:
            os._exit(code)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_ask_at_the_same_time() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: placer.choose(net(i % 6 + 2), (3, 4), devices="cpu", move=False), range(24)))
    assert {p.confidence for p in found} == {1.0}
    alone = placer.choose(net(2), (3, 4), devices="cpu", move=False)
    assert found[0].predictions["cpu"].step_seconds == pytest.approx(alone.predictions["cpu"].step_seconds)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_another_thread_may_just_be_drawing_random_numbers() -> None:
    done = threading.Event()

    def draw() -> None:
        while not done.is_set():
            torch.randn(1_000_000)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(5):
            child.call(lambda: float(torch.rand(())), limit_seconds=60)
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_where_other_threads_draw_all_the_time_nothing_is_called_and_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def end_as_for_a_draw() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGALRM)

    monkeypatch.setattr(child, "_end_where_torch_draws", end_as_for_a_draw)
    with pytest.raises(child.TookTooLong, match=r"other threads draw random numbers .* ask before they start"):
        child.call((tmp_path / "called").touch)
    assert not (tmp_path / "called").exists()


def test_a_notebook_cell_can_ask() -> None:
    """A cell is compiled from a string, inside a running event loop, in a module without a file."""
    cell = "import placer, torch\nnet = torch.nn.Linear(4, 2)\nplacement = placer.choose(net, (3, 4), devices='cpu')"
    namespace: dict[str, Any] = {"__name__": "__main__"}

    async def run_cell() -> None:
        exec(compile(cell, "<ipython-input-1>", "exec"), namespace)

    asyncio.run(run_cell())
    assert namespace["placement"].confidence == 1.0


def test_a_placement_can_be_pickled() -> None:
    placement = placer.choose(net(), (3, 4), devices="cpu")
    with placement.step():
        pass
    again = pickle.loads(pickle.dumps(placement))
    assert (again.device, again.confidence, again.reason) == (placement.device, placement.confidence, placement.reason)
    assert again.explain() == placement.explain()
    with again.step():
        pass
    assert again.times.seen == 2
