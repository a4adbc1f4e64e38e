"""What a process shares with its children outside of its own memory stays as it is."""

from __future__ import annotations

import mmap
import multiprocessing
import multiprocessing.pool
import os
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.errors import TraceError
from placer.profile.profile import Profile
from placer.tracing import child, trace, unshared
from placer.workload import make_workload

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def of_a_worker(folder: Path) -> torch.Tensor:
    loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=8, num_workers=1, multiprocessing_context="fork")
    batch: torch.Tensor = next(iter(loader))[0]
    assert batch.is_shared()
    return batch


def of_processes(folder: Path) -> torch.Tensor:
    return torch.ones(8, 4).share_memory_()


def anonymous(folder: Path) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, 128), dtype=torch.float32).fill_(1).view(8, 4)


def of_a_file(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.memmap(folder / "values", dtype=np.float32, mode="w+", shape=(8, 4))).fill_(1)


@pytest.mark.parametrize("make", [of_a_worker, of_processes, anonymous, of_a_file])
def test_shared_memory_is_read_and_never_written(make: Callable[[Path], torch.Tensor], tmp_path: Path) -> None:
    shared = make(tmp_path)
    assert child.call(lambda: shared.mul_(3).sum().item()) == 96
    assert shared.sum().item() == 32


def test_more_shared_memory_than_is_copied_can_be_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unshared, "_MOST_COPIED", 0)
    shared = of_processes(tmp_path)
    assert child.call(lambda: shared.sum().item()) == 32
    with pytest.raises(child.Ended, match="SIGSEGV"):
        child.call(lambda: shared.mul_(3).sum().item())
    assert shared.sum().item() == 32


def test_a_model_that_processes_share_is_not_trained(calibrated: Profile) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).share_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    placer.choose(step, batch=(torch.randn(8, 4),), modules=model, optimizer=optimizer, devices="cpu", move=False)
    placer.choose(model, (8, 4), mode="train", devices="cpu", move=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_pipes_and_sockets_keep_what_is_in_them() -> None:
    here, there = multiprocessing.Pipe()
    there.send("first")
    one, other = socket.socketpair()
    other.send(b"first")

    def takes() -> Any:
        return here.recv()

    with pytest.raises(TraceError, match=r"pipe or a socket \(EOFError: .* as an argument"):
        child.call(takes)
    with pytest.raises(TraceError, match=r"pipe or a socket \(OSError: .* as an argument"):
        child.call(lambda: one.recv(5))
    assert child.call(lambda: os.read(one.fileno(), 5)) == b""
    assert (here.recv(), one.recv(5)) == ("first", b"first")
    one.close()
    other.close()


def test_files_keep_their_place_and_their_contents(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("".join(f"{i}\n" for i in range(100_000)))
    with (tmp_path / "read").open() as read, (tmp_path / "written").open("w", buffering=1) as written:
        read.readline()
        assert child.call(lambda: (written.write("a line\n"), read.readlines()[-1])[1]) == "99999\n"
        assert read.readline() == "1\n"
        written.write("mine\n")
    assert (tmp_path / "written").read_text() == "mine\n"


@pytest.mark.parametrize("mode", ["r+", "w+", "a+"])
def test_a_file_open_for_both_is_read_and_written_in_a_copy(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("old\n")
    with path.open(mode) as file:
        file.write("mine\n")
        file.flush()
        before, at = path.read_text(), file.tell()

        def step() -> tuple[str, int]:
            file.write("the child's\n")
            end = file.tell()
            file.seek(0)
            return file.read(), end

        assert child.call(step) == (f"{before}the child's\n", len(f"{before}the child's\n"))
        assert (path.read_text(), file.tell()) == (before, at)
        file.write("mine again\n")
    assert path.read_text() == f"{before}mine again\n"


def test_a_larger_file_than_is_copied_can_be_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2**20  # more than other tests may have left open
    monkeypatch.setattr(unshared, "_MOST_COPIED", most)
    with (tmp_path / "first").open("w+b") as first, (tmp_path / "second").open("w+b") as second:
        for file in (first, second):
            file.write(b"four")
            file.flush()
        second.truncate(most + 1)
        assert child.call(lambda: os.write(first.fileno(), b"more")) == 4
        assert child.call(lambda: os.pread(second.fileno(), 4, 0)) == b"four"
        with pytest.raises(TraceError, match="Bad file descriptor"):
            child.call(lambda: os.write(second.fileno(), b"more"))


#: Modules that see to their locks when a process forks.
SEE_TO_THEIR_LOCKS = ("threading", "logging", "concurrent.futures.thread", "placer.tracing.tracer")


def locks_of_modules() -> list[Any]:
    modules = [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and name not in SEE_TO_THEIR_LOCKS
    ]
    kinds = (type(threading.Lock()), type(threading.RLock()))
    values = [value for module in modules for value in list(vars(module).values())]
    return list({id(value): value for value in values if type(value) in kinds}.values())


def test_no_lock_that_another_thread_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data loader's worker, say, sends its last batch from another thread, which looks for a temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    workload = make_workload(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), (3, 4), loss=torch.sum)
    held, traced = threading.Event(), threading.Event()

    def hold_them() -> None:
        mine = [lock for lock in locks_of_modules() if lock.acquire(blocking=False)]
        held.set()
        traced.wait(60)
        for lock in mine:
            lock.release()

    holder = threading.Thread(target=hold_them)
    with (tmp_path / "open for both").open("w+"):
        holder.start()
        try:
            assert held.wait(60)
            assert trace(workload).mode == "train"
        finally:
            traced.set()
            holder.join()


def test_rows_that_a_step_writes_to_a_database_stay_in_the_child(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    database.execute("create table losses (value real)")
    database.execute("insert into losses values (1.5)")
    model = nn.Linear(4, 2)

    def step(x: torch.Tensor) -> None:
        loss = model(x).sum()
        loss.backward()
        database.execute("insert into losses values (?)", [loss.item()])

    assert trace(make_workload(step, (3, 4), modules=model)).mode == "train"
    assert database.execute("select * from losses").fetchall() == [(1.5,)]
    database.close()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.db"}


def test_another_file_that_has_taken_the_path_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "read"
    path.write_text("mine")
    with path.open() as file:
        (tmp_path / "other").write_text("the other's")
        (tmp_path / "other").replace(path)
        assert child.call(lambda: os.read(file.fileno(), 100)) == b"mine"
        monkeypatch.setattr(unshared, "_path_of", lambda number: str(path))
        assert child.call(lambda: os.read(file.fileno(), 100)) == b""


def test_only_what_multiprocessing_itself_raises_is_told_as_taken_from_another_process() -> None:
    here, _there = multiprocessing.Pipe()

    def follows() -> None:
        try:
            here.recv()
        except EOFError as error:
            raise RuntimeError("the environment died") from error

    def fails(_: int) -> None:
        raise ValueError("my own mistake")

    def maps() -> None:
        with multiprocessing.pool.ThreadPool(1) as pool:
            pool.map(fails, [1])

    with pytest.raises(TraceError, match=r"from a worker process.*RuntimeError: the environment died"):
        child.call(follows)
    with pytest.raises(TraceError, match=r"^tracing the step failed with ValueError: my own mistake"):
        child.call(maps)


def test_a_step_that_takes_its_batch_from_a_worker_is_told_to_take_an_argument(calibrated: Profile) -> None:
    loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2, num_workers=1, multiprocessing_context="fork")
    batches, model = iter(loader), nn.Linear(4, 2)

    def step() -> None:
        model(next(batches)[0]).sum().backward()

    with pytest.warns(placer.PlacerWarning, match="takes something from a worker process, .* as an argument"):
        placer.choose(step, batch=(), modules=model, devices="cpu")
    assert sum(1 for _ in batches) == 4


def watched() -> int:
    breakpoint()  # noqa: T100 - a debugger's
    numbers = [1, 2]
    thread = threading.Thread(target=numbers.append, args=(3,))
    thread.start()
    thread.join()
    return len(numbers)


def test_nobody_watches_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does, such as a debugger, would wait for somebody to answer."""

    def watches(*_: Any, **__: Any) -> Any:
        time.sleep(1000)

    monkeypatch.setattr(sys, "breakpointhook", watches)
    before = threading.gettrace(), threading.getprofile()
    threading.settrace(watches)
    threading.setprofile(watches)
    try:
        assert child.call(watched) == 3
    finally:
        threading.settrace(before[0])
        threading.setprofile(before[1])


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python before 3.12 has no sys.monitoring")
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_breakpoint_of_sys_monitoring_is_not_met_in_a_child(everywhere: bool) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, started = next(n for n in range(6) if monitoring.get_tool(n) is None), monitoring.events.PY_START

    def step() -> str | None:
        len(os.listdir())  # noqa: PTH208 - any call
        return monitoring.get_tool(tool)

    monitoring.use_tool_id(tool, "debugger")
    try:
        monitoring.register_callback(tool, started, lambda *_: time.sleep(1000))
        if everywhere:
            assert child.call(lambda: (monitoring.set_events(tool, started), unshared.let_nobody_watch(), step())[2])
        else:
            monitoring.set_local_events(tool, step.__code__, started)
            assert child.call(step) == "debugger"  # the step may switch events on that are its own
    finally:
        monitoring.set_local_events(tool, step.__code__, 0)
        monitoring.register_callback(tool, started, None)
        monitoring.free_tool_id(tool)
