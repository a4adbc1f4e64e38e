"""What happens in the child stays there, however the child ends."""

from __future__ import annotations

import ast
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch
from ray_apart import ray_apart
from torch import nn

import placer
from placer import machine
from placer.errors import TraceError
from placer.profile.profile import Profile
from placer.tracing import child, isolation, trace, trace_here, tracer
from placer.workload import make_workload

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def no_children() -> Iterator[None]:
    """None more is left than there was, neither running nor as a zombie."""
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


def abort() -> None:
    os.kill(os.getpid(), signal.SIGABRT)


def leave() -> None:
    os._exit(3)


def exit_python() -> None:
    sys.exit(4)


def read_nowhere() -> None:
    ctypes.string_at(0)


def hang() -> None:
    time.sleep(1000)


def compute() -> None:
    while True:
        pass


def hog() -> torch.Tensor:
    return torch.ones(2**50)


def test_the_result_comes_back_and_nothing_else(no_children: None) -> None:
    held: list[int] = []
    assert child.call(lambda: (held.append(1), os.getpid(), len(held))[1:]) != (os.getpid(), 1)
    assert held == []


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (abort, "SIGABRT"),
        (leave, "exit code 3"),
        (read_nowhere, "SIGSEGV"),
        (exit_python, "SystemExit: 4"),
        (hog, "memory"),
    ],
)
def test_a_child_that_ends_is_an_error_that_says_how(end: Callable[[], Any], said: str, no_children: None) -> None:
    with pytest.raises(TraceError, match=said):
        child.call(end)


def test_a_child_that_takes_too_long_is_ended(no_children: None) -> None:
    with pytest.raises(child.TookTooLong, match=r"longer than 0.2 s here; give a smaller batch"):
        child.call(compute, limit_seconds=0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_child_that_waits_for_a_lock_of_another_thread_is_ended_and_says_so(
    no_children: None, tmp_path: Path
) -> None:
    lock, calls = threading.Lock(), tmp_path / "calls"

    def step() -> None:
        with calls.open("a") as file:
            file.write("a call\n")
        lock.acquire()

    with lock, pytest.raises(child.TookTooLong, match=r"waits for something: .* locks .* ask before they start"):
        child.call(step, limit_seconds=2)
    assert calls.read_text() == "a call\n"


def test_a_step_that_waits_for_a_thread_of_its_own_runs_once(no_children: None, tmp_path: Path) -> None:
    model, calls = nn.Linear(4, 2), tmp_path / "calls"

    def step(x: torch.Tensor) -> None:
        with calls.open("a") as file:
            file.write("a call\n")
        thread = threading.Thread(target=time.sleep, args=(1.6,))
        thread.start()
        thread.join()
        model(x).sum().backward()

    assert trace(make_workload(step, (3, 4), modules=model)).mode == "train"
    assert calls.read_text() == "a call\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_of_the_parent_that_a_child_writes_to_counts(no_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages are copied then, without one allocation."""
    weights = torch.ones(64 * 2**20)
    monkeypatch.setattr(machine, "memory", lambda device: (64 * 2**20, 2**34))

    def step() -> None:
        weights.mul_(0.5)
        hang()

    with pytest.raises(TraceError, match=r"needs more memory than there is free here \(0.0562 GB .* smaller batch"):
        child.call(step, limit_seconds=100)
    assert weights[0] == 1


@pytest.mark.skipif(child._FORK_ALONE is None, reason="the C library has no fork without handlers")
def test_a_fork_that_no_handler_sees_lets_no_other_thread_run_meanwhile() -> None:
    """A child that lets one run waits for it for ever."""
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            sum(range(100))

    threads = [threading.Thread(target=count) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    children: set[int] = set()
    try:
        for _ in range(50):
            pid = child._forked_unnoticed()
            if pid == 0:
                os._exit(0)
            children.add(pid)
        deadline = time.monotonic() + 100
        while children and time.monotonic() < deadline:
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
    finally:
        sys.setswitchinterval(interval)
        done.set()
        for thread in threads:
            thread.join()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert not children


class Kept:
    """As a temporary file that is removed with its last reference, in whatever process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __del__(self) -> None:
        self.path.unlink(missing_ok=True)


VARIABLE: ContextVar[Kept] = ContextVar("VARIABLE")


def in_a_local(value: Kept, wait: Callable[[], object]) -> None:
    local = threading.local()
    local.kept = value
    del value
    wait()


def in_a_context(value: Kept, wait: Callable[[], object]) -> None:
    VARIABLE.set(value)
    del value
    wait()


@pytest.mark.parametrize("keep", [in_a_local, in_a_context])
def test_what_another_thread_keeps_is_not_finalized_in_a_child(
    keep: Callable[[Kept, Callable[[], object]], None], tmp_path: Path
) -> None:
    path = tmp_path / "kept"
    keeps, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: keep(Kept(path), lambda: (keeps.set(), done.wait())))
    thread.start()
    keeps.wait()
    child.call(lambda: None)
    stays = path.exists()
    done.set()
    thread.join()
    assert (stays, path.exists()) == (True, False)  # in the end nothing refers to it


def test_another_thread_may_just_be_building_a_tuple() -> None:
    """A tuple is made longer in its place while nothing else refers to it, which a look at all objects would."""
    failures: list[BaseException] = []
    done = threading.Event()

    def build() -> None:
        try:
            while not done.is_set():
                tuple(number for number in range(12))
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failures.append(error)

    threads = [threading.Thread(target=build) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child.call(lambda: None)
    finally:
        sys.setswitchinterval(interval)
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_another_thread_may_just_be_loading_numpys_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.random", ModuleType("numpy.random"))
    assert trace(make_workload(nn.Linear(4, 2), (3, 4), mode="train")).calls


def test_processes_that_the_step_starts_end_with_it(no_children: None) -> None:
    def start() -> int:
        return subprocess.Popen(["sleep", "1000"]).pid

    started = child.call(start)
    gone = time.monotonic() + 60
    while psutil.pid_exists(started) and psutil.Process(started).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < gone


def test_a_child_that_leaves_a_process_behind_has_ended(no_children: None) -> None:
    def end() -> None:
        if os.fork() == 0:
            time.sleep(1000)
        abort()

    with pytest.raises(child.Ended, match="SIGABRT"):
        child.call(end, limit_seconds=100)


def test_all_attempts_have_one_limit(no_children: None) -> None:
    began = time.monotonic() - 100
    with pytest.raises(child.TookTooLong):
        child.call(hang, limit_seconds=100, began=began)


def test_ctrl_c_ends_the_child_and_is_raised(no_children: None) -> None:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        child.call(hang)


def test_a_child_runs_no_handler_and_writes_no_output_of_its_parent(
    no_children: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    try:
        with pytest.raises(child.Ended, match="SIGTERM"):
            child.call(lambda: os.kill(os.getpid(), signal.SIGTERM))
        sys.stdout.write("once")
        child.call(lambda: (print("from the child"), sys.stdout.flush(), os.write(2, b"from the child")))
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "".join(capfd.readouterr()) == "once"


@pytest.mark.parametrize("end", [abort, hang])
def test_choose_warns_once_where_the_step_ends_its_process(
    end: Callable[[], None], calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            end()
            result: torch.Tensor = self.body(x)
            return result

    monkeypatch.setattr(child.call, "__kwdefaults__", {"limit_seconds": 0.5})
    monkeypatch.setattr(tracer.trace, "__kwdefaults__", {"limit_seconds": 0.5})
    with pytest.warns(placer.PlacerWarning, match="without a prediction") as seen:
        placement = placer.choose(Ends(), (3, 4), devices="cpu")
    assert (placement.decision.device, placement.confidence, len(seen)) == ("cpu", None, 1)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_the_same_trace_is_made_in_the_process_of_a_copy(mode: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    workload = make_workload(model, (3, 4), mode=mode)
    assert trace_here(workload).calls == trace(workload).calls
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


POOL = ThreadPoolExecutor(1)


class InThreads(nn.Module):
    """Each of its layers runs in another thread: one that it starts, and one of a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: outputs.append(self.first(x)))
        thread.start()
        thread.join()
        result: torch.Tensor = POOL.submit(self.second, outputs[0]).result()
        return result


def test_threads_of_the_step_are_followed_in_the_process_of_a_copy() -> None:
    before = {**vars(threading.Thread)}, {**vars(ThreadPoolExecutor)}
    workload = make_workload(InThreads(), (3, 4), mode="train")
    assert [call.op for call in trace_here(workload).calls].count("aten::addmm") == 2
    assert trace_here(workload).calls == trace(workload).calls
    assert ({**vars(threading.Thread)}, {**vars(ThreadPoolExecutor)}) == before


class Table(nn.Module):
    """A dict of the user's own is named like torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.activation_hooks = {"double": lambda x: x * 2}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.activation_hooks["double"](self.layer(x))
        return result


def test_a_copy_has_all_of_the_model_but_hooks() -> None:
    model, seen = Table(), []
    model.layer.register_forward_hook(lambda *_: seen.append("hook"))
    workload = make_workload(model, (3, 4), mode="infer")
    assert trace_here(workload).calls == trace(workload).calls
    assert seen == []


def test_where_no_process_can_be_forked_models_are_traced_on_copies(
    calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    model = nn.Linear(4, 2)
    assert placer.choose(model, (3, 4), devices="cpu").confidence == 1.0
    with pytest.warns(placer.PlacerWarning, match="none can be forked here; give choose the model"):
        assert placer.choose(lambda x: model(x), (3, 4), modules=model, devices="cpu").confidence is None


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("where", "count"),
    [("kernel", "12"), *(pytest.param(where, "200", marks=pytest.mark.soak) for where in ("kernel", "ray"))],
)
def test_many_forks_among_threads_workers_kernels_and_tasks(
    where: str, count: str, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "ray":
        pytest.importorskip("ray")
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tests), os.environ.get("PYTHONPATH")))))
    with ray_apart():
        done = subprocess.run(
            [sys.executable, str(tests / "forking.py"), where, count],
            capture_output=True,
            text=True,
            check=False,
            timeout=270,
        )
    assert (done.returncode, done.stdout.split()[-1:]) == (0, [count]), done.stdout + done.stderr


def test_a_child_asks_nothing_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers look whether a CUDA graph is being captured, which starts CUDA, or fails in a fork."""

    def asked(*_: Any) -> None:
        raise AssertionError("CUDA was asked")

    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        monkeypatch.setattr(torch.optim.Optimizer, name, asked, raising=False)
    for name in ("synchronize", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, asked)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()

    assert trace(make_workload(step, (3, 4), modules=model, mode="train")).calls
    with pytest.raises(AssertionError, match="CUDA was asked"):
        torch.cuda.synchronize()


def test_what_stands_for_symbolic_sizes_answers_all_that_this_torchs_kernels_ask() -> None:
    """What it does not answer loads the modules of symbolic sizes in every child, and the compiler with them."""
    package = Path(torch.__file__).parent
    folders = [package / name for name in ("_refs", "_prims", "_prims_common", "_decomp")]
    files = [package / "_meta_registrations.py", *(file for folder in folders for file in folder.rglob("*.py"))]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    asked: dict[str, set[str]] = {module: set() for module in isolation.SIZES_ARE_NUMBERS}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in asked:
            asked[node.module].update(alias.name for alias in node.names)
    of_symbols = {"constrain_range", "_constrain_range_for_size"}  # by ops of symbols alone
    assert sum(map(len, asked.values())) > 6
    for module, names in asked.items():
        assert names - of_symbols <= isolation.SIZES_ARE_NUMBERS[module].keys()


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_checkpointing_and_mixed_precision_load_no_compiler_in_a_child(autocast: torch.dtype | None) -> None:
    script = f"""
import sys, torch
from torch.utils.checkpoint import checkpoint
from placer.tracing import trace
from placer.workload import make_workload
def look():
    assert not {{"torch._dynamo.config", "sympy.core"}} & {{*sys.modules}}
class Looks(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        look()
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        look()
        return gradient
class Net(torch.nn.Linear):
    def forward(self, x):
        return super().forward(Looks.apply(checkpoint(super().forward, x, use_reentrant=False)))
assert not trace(make_workload(Net(4, 4), (6, 4), mode="train", autocast={autocast})).notes
"""
    subprocess.run([sys.executable, "-c", script], check=True)
