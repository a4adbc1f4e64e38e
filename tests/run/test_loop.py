"""An epoch of a script's loop: what is waited for, what is measured, and what it takes on each device."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from placer import machine
from placer.profile.profile import Profile
from placer.run import ReportOptions, Session, watcher
from placer.run.loaders import Loaders
from placer.run.report import Report

Run = Callable[..., "CompletedProcess[str]"]


class Rows(Dataset[Tensor]):
    """Each row takes a second by the clock."""

    def __init__(self, clock: Any, count: int = 12) -> None:
        self.clock, self.count = clock, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        self.clock.now += 1.0
        return torch.zeros(84)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.zeros(6, 84))


@pytest.fixture
def loaders(clock: Any) -> Iterator[Loaders]:
    before = dict(vars(_BaseDataLoaderIter))
    loaders = Loaders(clock, clock)
    loaders.watch()
    yield loaders
    loaders.unwatch()
    assert dict(vars(_BaseDataLoaderIter)) == before


def test_waits_and_passes_of_a_loader_are_seen(loaders: Loaders, clock: Any) -> None:
    loader = DataLoader(Rows(clock), batch_size=4)
    for _ in loader:
        clock.now += 10.0
        assert loaders.newest is not None
        loaders.newest.stepped(clock.now)
    for number, _ in enumerate(loader):
        if number:
            break
    elsewhere = threading.Thread(target=list, args=(loader,))
    elsewhere.start()
    elsewhere.join()
    whole, begun = loaders.passes
    assert (whole.batches, whole.steps, whole.waited, whole.seconds, whole.length) == (3, 3, 12.0, 42.0, 3)
    assert whole.turns(warm=True) == (28.0, 8.0, 2)
    assert whole.turns(warm=False) == (42.0, 12.0, 3)
    assert (begun.complete, begun.batches, begun.length) == (False, 2, 3)  # as its sampler says
    assert loaders.waited == 20.0
    del loader
    assert begun.length is None
    assert len(list(DataLoader(Stream(), batch_size=2))) == 3
    assert loaders.passes[-1].length == 3


def test_the_start_of_workers_is_waited_for(loaders: Loaders, clock: Any) -> None:
    iterator = iter(DataLoader(Stream()))
    (begun,) = loaders.passes
    begun.workers = 2  # as far as anybody can tell by what follows
    clock.now += 5.0
    iterator._num_yielded = 0  # as with workers, when they have been started
    clock.now += 1.0
    next(iterator)
    assert (begun.waited, begun.waited_first, begun.began) == (5.0, 5.0, 1.0)
    assert len(loaders.passes) == 1


def test_an_iterator_is_as_it_always_is(loaders: Loaders, clock: Any) -> None:
    watched = iter(DataLoader(Rows(clock), batch_size=4))
    next(watched)
    assert watched._num_yielded == 1
    loaders.unwatch()
    plain = iter(DataLoader(Rows(clock), batch_size=4))
    next(plain)
    assert list(vars(watched)) == list(vars(plain))
    assert (watched._num_yielded, watched._profile_name) == (1, plain._profile_name)
    assert len(list(watched)) == 2


def looped(clock: Any, *, rest: float = 2.0, rows: int = 12, epochs: int = 3) -> Callable[[], None]:
    """A script: four seconds for each batch, a model that is busy for 3, and the rest of a turn."""

    class Slow(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            clock.now += 3.0
            return super().forward(x)

    def run() -> None:
        model = Slow(84, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Rows(clock, rows), batch_size=4)
        for _ in range(epochs):
            for x in loader:
                clock.now += rest
                model(x).sum().backward()
                optimizer.step()
            clock.now += 1000.0  # evaluates

    return run


@pytest.fixture
def reported(clock: Any, monkeypatch: pytest.MonkeyPatch, handmade_profile: Profile) -> Callable[..., Report]:
    monkeypatch.setattr(watcher, "Watcher", partial(watcher.Watcher, clock))

    def report(run: Callable[[], None], *, workers: int = 0, **options: Any) -> Report:
        session = Session(ReportOptions(handmade_profile, **options))
        session.watch()
        run()
        session.stop()
        assert session.watcher is not None
        for one in session.watcher.loaders.passes:
            one.workers = workers
        made = session.report()
        assert isinstance(made, Report)
        return made

    return report


def test_an_epoch_is_the_priced_steps_and_what_was_measured_beside_them(
    reported: Callable[..., Report], clock: Any
) -> None:
    report = reported(looped(clock), price={"cpu": 3600.0})
    run = report.run
    assert run is not None
    assert (run.unit, run.batches, run.home) == ("epoch", 3, "cpu")
    assert run.measured_seconds == pytest.approx(27.0)
    assert run.loader_share == pytest.approx(4 / 9)
    (answer,) = report.answers
    assert answer.explanation is not None
    costs = answer.explanation.devices
    assert costs["cpu"].bounded_by == "launches"
    # No interval holds the three seconds of the model: they are the script's own, and the host's on any device.
    beside = 4.0 + 2.0 + 3.0 - costs["cpu"].high
    for device, time in run.devices.items():
        cost = costs[device]
        assert time.seconds == pytest.approx(3 * (beside + cost.step_seconds))
        ends = (3 * (0.9 * beside + cost.low), 3 * (1.1 * beside + cost.high))
        assert (time.low, time.high) == pytest.approx(ends)
    assert run.devices["cpu"].dollars == pytest.approx(run.devices["cpu"].seconds)
    text = " ".join(report.to_text().split())
    assert "the loop takes 9.00 s a step: 3.00 s the model, 4.00 s waiting for batches, 2.00 s the rest" in text
    assert "The run an epoch of 3 batches: cpu 27.0 s (24.3–29.7 s, measured 27.0 s, $27.00" in text
    assert "44% of it here is waiting for the loader, measured" in text

    more = reported(looped(clock), epochs=20, steps_per_epoch=500).run
    assert more is not None
    assert more.measured_seconds == pytest.approx(20 * 500 * 9.0)
    assert more.devices["cpu"].seconds == pytest.approx(20 * 500 / 3 * run.devices["cpu"].seconds)


@pytest.mark.parametrize(("rest", "rows", "bound"), [(0.0, 48, "loader"), (20.0, 12, "script")])
def test_what_bounds_the_loop_is_told_and_what_to_do_about_it(
    reported: Callable[..., Report], clock: Any, monkeypatch: pytest.MonkeyPatch, rest: float, rows: int, bound: str
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    report = reported(looped(clock, rest=rest, rows=rows))
    text = " ".join(report.to_text().split())
    assert f"Verdict {bound}-bound; " in text
    following = json.loads(report.to_json())["models"][0]["next"]
    # Two workers need 2 s for a batch, beside a turn of 3 s and what they take of its cores: 1 s.
    assert (following == "DataLoader(..., num_workers=2): ~43% less time (4.00 s instead of 7.00 s a step)") == (
        not rest
    )


def test_seconds_in_which_two_models_train_count_once(reported: Callable[..., Report], clock: Any) -> None:
    def run() -> None:
        encoder, decoder = nn.Linear(84, 3), nn.Linear(3, 84)
        optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
        for x in DataLoader(Rows(clock), batch_size=4):
            clock.now += 2.0
            hidden = encoder(x)
            clock.now += 1.0
            decoder(hidden).sum().backward()
            clock.now += 3.0
            optimizer.step()

    run_time = reported(run).run
    assert run_time is not None
    assert run_time.measured_seconds == pytest.approx(3 * 10.0)
    assert run_time.devices["cpu"].seconds == pytest.approx(3 * 10.0, rel=0.01)


def test_parts_that_learn_alone_are_models_and_the_whole_keeps_its_trace(reported: Callable[..., Report]) -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(84, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    def run() -> None:
        policy = Policy()
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        for _ in range(3):
            with torch.no_grad():
                for _ in range(watcher.FIRST_CALLS):
                    policy(torch.zeros(1, 84))
            for _ in range(4):
                policy.head(policy.body(torch.zeros(32, 84))).sum().backward()
                optimizer.step()

    report = reported(run)
    rows = {answer.watched.name: answer for answer in report.answers}
    assert list(rows) == ["Policy", "Policy.body", "Policy.head"]
    assert all(answer.explanation is not None for answer in rows.values())
    assert [answer.watched.mode for answer in rows.values()] == ["infer", "train", "train"]
    assert [answer.watched.steps for answer in rows.values()] == [12, 12, 12]
    assert report.run is not None
    assert (report.run.unit, report.run.batches) == ("steps", 12)


def test_workers_that_the_loop_waits_for_bound_it_on_every_device(reported: Callable[..., Report], clock: Any) -> None:
    run = reported(looped(clock), workers=2).run
    assert run is not None
    assert [time.seconds for time in run.devices.values()] == pytest.approx([27.0] * len(run.devices))
    assert [time.low for time in run.devices.values()] == pytest.approx([0.9 * 27.0] * len(run.devices))


def test_a_script_that_computes_on_the_slower_device_fails_where_that_is_asked(python: Run, tmp_path: Path) -> None:
    script = tmp_path / "wide.py"
    script.write_text(
        "import atexit, sys, torch\n"
        "atexit.register(print, 'at exit')\n"
        "torch.nn.Linear(1024, 1024)(torch.randn(2048, 1024))\n"
        "raise SystemExit(int(sys.argv[1]))\n"
    )
    asked = ("--profile", "intel-xeon-avx512-2-core", "--what-if", "H100", "--json", "--fail-if-slower-than", "1.3")
    for ends_with, code in ((0, 3), (5, 5)):
        written = tmp_path / f"report-{code}.json"
        done = python("-m", "placer", "run", *asked, "--output", str(written), str(script), str(ends_with))
        assert done.returncode == code, done.stderr
        assert done.stdout == "at exit\n"
        assert ("slower than allowed: " in done.stderr) == (code == 3)
        values = json.loads(written.read_text(encoding="utf-8"))
        assert values["slower"] > 1.3
        (model,) = values["models"]
        assert {"verdict", "why", "next", "gain", "bound", "devices", "choice", "confidence"} <= set(model)


def test_what_is_not_slower_or_cannot_be_judged_has_its_own_exit_code(handmade_profile: Profile) -> None:
    session = Session(ReportOptions(handmade_profile))
    assert session.judge(1.3) == 1  # nothing was watched
    session.watch()
    nn.Linear(4, 2)(torch.randn(3, 4))
    assert session.judge(1e9) == 0
