"""Calls a function in a forked child: whatever it does to objects, modules and global state ends with the child.

Only the result comes back, pickled, or the error as a class and its message. The child never touches an accelerator,
and neither a crash, a hang nor a lack of memory in it reaches the process that asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import pickle
import random
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import torch

from placer import machine
from placer.errors import TraceError, first_line
from placer.tracing.isolation import numpy_random

if hasattr(os, "fork"):  # not on Windows
    from placer.tracing.unshared import hold, let_go, own_files, own_memory

T = TypeVar("T")

#: The longest that a child may take, in seconds.
LIMIT_SECONDS = 20.0
#: A child that waits for a lock at two looks, so many seconds apart, may do so for ever: another thread held it at the
#: fork. It is ended, and the next one is forked. The last may wait, as the step itself may.
_LOOK_SECONDS = 0.5
_CHILDREN = 3
#: The share of the free memory that a child may take.
_MEMORY_SHARE = 0.9
#: The length of what a child sends comes first.
_HEADER = struct.Struct("<Q")

# Python 3.12 warns of a fork beside other threads. The child runs one thread, takes no lock of theirs, and is ended
# where it hangs.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning, module=__name__)


class Ended(TraceError):
    """The step ended the child before it had answered."""


class TookTooLong(TraceError):
    """The child did not answer in time."""


class NoChild(Exception):
    """No child can be forked here, or a forked one could not run a backward pass."""


#: Set once a child found that torch's autograd does not work in it, which then holds for the life of the process: a
#: backward pass beside an accelerator has started threads for it, and the engine remembers a fork after that. What it
#: needs them for is work on an accelerator, which no child does.
_autograd_refuses = False


def call(
    function: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS, began: float | None = None
) -> T:
    """The result of ``function()``, called in a forked child of one thread. It has to pickle.

    ``began``: when time began to count, by ``time.monotonic``; None is now.

    Raises:
        NoChild: the function has to be called in this process.
        Ended: the child crashed.
        TookTooLong: the child took longer than ``limit_seconds``, and was ended.
        TraceError: of the class that the function raised, with its message; for any other exception TraceError itself.
    """
    global _autograd_refuses
    if not hasattr(os, "fork"):
        raise NoChild
    deadline = (time.monotonic() if began is None else began) + limit_seconds
    kind, value = _first_answer(function, deadline, limit_seconds)
    if kind == "no autograd" and not _autograd_refuses:
        _autograd_refuses = True
        kind, value = _first_answer(function, deadline, limit_seconds)
    if kind == "no autograd":
        raise NoChild
    if kind == "result":
        result: T = value
        return result
    raise value


# --- the parent -------------------------------------------------------------------------------------------------------


class _Locked(Exception):
    """The child waits for a lock."""


def _first_answer(function: Callable[[], object], deadline: float, limit_seconds: float) -> tuple[str, Any]:
    """What the first child answers that does not wait for a lock."""
    for _ in range(_CHILDREN - 1):
        with contextlib.suppress(_Locked):
            return _asked(function, deadline, limit_seconds, may_wait=False)
    return _asked(function, deadline, limit_seconds, may_wait=True)


def _asked(
    function: Callable[[], object], deadline: float, limit_seconds: float, *, may_wait: bool
) -> tuple[str, Any]:
    """What one child answers."""
    state = random.getstate()  # Python seeds its generator anew in every child
    reading, writing = os.pipe()
    held = hold()
    try:
        with _numpy_at_rest():
            pid = _fork_unnoticed() if _autograd_refuses else os.fork()
        if pid == 0:
            _in_child(function, writing, state, limit_seconds)
    except (OSError, NoChild) as error:  # no further process is allowed
        os.close(reading)
        os.close(writing)
        raise NoChild from error
    finally:
        let_go(held)
    _lead_a_group(pid)
    os.close(writing)
    try:
        answer = _received(reading, pid, deadline, may_wait)
    finally:
        os.close(reading)
        status = _buried(pid)
    if answer is not None:
        return answer
    if time.monotonic() >= deadline:
        raise TookTooLong(f"tracing one step takes longer than {limit_seconds:g} s here; give a smaller batch")
    raise Ended(f"the step ends the process that it runs in{_how(status)}, here one that only traces it")


def _fork_unnoticed() -> int:
    """As ``os.fork``, but no library's own handler runs, torch's engine's among them.

    Nor does glibc then wait for its own locks (those of malloc, say): a child that meets one taken is followed by
    another. Raises NoChild where the C library has no such fork.
    """
    fork = getattr(ctypes.PyDLL(None), "_Fork", None)  # glibc 2.34 and musl 1.2.2, POSIX 2024
    if fork is None:
        raise NoChild
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = fork()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return pid
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("no process could be forked")
    return pid


@contextlib.contextmanager
def _numpy_at_rest() -> Iterator[None]:
    """No other thread draws from numpy's generator in the body: its lock would stay taken in a child."""
    generator = numpy_random()
    with contextlib.nullcontext() if generator is None else generator.get_bit_generator().lock:
        yield


def _received(reading: int, pid: int, deadline: float, may_wait: bool) -> tuple[str, Any] | None:
    """What the child sent; None where it ended or hung before it had sent all of it.

    Raises _Locked where it only waits for a lock, unless it may.
    """
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = bytearray()
    wanted = _HEADER.size
    waited: _Look | None = None
    while len(data) < wanted:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if not poll.poll(min(left, _LOOK_SECONDS) * 1e3):
            before, waited = waited, _look_at(pid)
            if waited is not None and waited.ended:  # a process of its own may still hold the pipe
                return None
            if waited is not None and waited.locked and waited == before and not may_wait:
                raise _Locked
            continue
        part = os.read(reading, 1 << 20)
        if not part:
            return None
        data += part
        if len(data) >= _HEADER.size:
            wanted = _HEADER.size + _HEADER.unpack_from(data)[0]
    answer: tuple[str, Any] = pickle.loads(memoryview(data)[_HEADER.size :])  # noqa: S301 - from this process's own child
    return answer


class _Look(NamedTuple):
    """A child at one moment, with the CPU time in ticks that it has had."""

    ended: bool
    locked: bool
    ticks: int


def _look_at(pid: int) -> _Look | None:
    """None where nobody can tell, as outside Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        waits_in = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return None
    return _Look(fields[0] == "Z", fields[0] == "S" and "futex" in waits_in, int(fields[11]) + int(fields[12]))


def _lead_a_group(pid: int) -> None:
    """Processes that a child starts end with it. The child says so too, as either may be first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def _buried(pid: int) -> int | None:
    """End the child's group and wait for it; its status, None where something else has taken that already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, 0)[1]
    return None


def _how(status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        return f" ({signal.Signals(os.WTERMSIG(status)).name})"
    return f" (exit code {os.WEXITSTATUS(status)})" if status is not None and os.WIFEXITED(status) else ""


# --- the child --------------------------------------------------------------------------------------------------------


def _in_child(function: Callable[[], object], writing: int, state: Any, limit_seconds: float) -> NoReturn:
    """Call the function, send what comes of it, and end: no handler, buffer or thread of the parent's is run again."""
    try:
        random.setstate(state)
        _stand_alone(writing, limit_seconds)
        _send(writing, _answer(function))
    finally:
        os._exit(1)


def _stand_alone(writing: int, limit_seconds: float) -> None:
    """Let go of all that the process shares with its parent, but the pipe to it."""
    _lead_a_group(0)
    sys.settrace(None)
    sys.setprofile(None)
    faulthandler.disable()
    gc.disable()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then ends its child
    signal.alarm(int(2 * limit_seconds) + 1)  # a parent that was killed ends nobody
    own_files(keep=writing)
    own_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the first to go where memory runs out
    _limit_memory()
    _leave_accelerators_alone()
    torch.set_num_threads(1)  # the threads of OpenMP's pool were not forked


#: What a child answers in place of CUDA, as an idle device would: asking it would start it, or fail for want of it.
_IDLE = {
    "synchronize": None, "empty_cache": None, "reset_peak_memory_stats": None, "is_current_stream_capturing": False,
    "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
}  # fmt: skip


def _leave_accelerators_alone() -> None:
    """CUDA is not started, and not asked: not by optimizers either, which look whether a graph is being captured."""
    for name, answer in _IDLE.items():
        setattr(torch.cuda, name, lambda *_args, _answer=answer, **_kwargs: _answer)
    torch.cuda._is_in_bad_fork = lambda: True  # else only CUDA's own handler knows of the fork
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, name):
            setattr(torch.optim.Optimizer, name, lambda _optimizer: None)


def _limit_memory() -> None:
    """Have allocations fail here before the system has to end a process."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = now + int(_MEMORY_SHARE * machine.memory("cpu")[0])
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))
    except (ImportError, OSError, ValueError):  # not Linux
        return


def _answer(function: Callable[[], object]) -> tuple[str, Any]:
    try:
        return "result", function()
    except BaseException as error:  # noqa: BLE001 - the boundary to the user's code, SystemExit included
        if not _autograd_works():
            return "no autograd", None
        if isinstance(error, TraceError):
            return "error", type(error)(str(error))
        return "error", TraceError(f"tracing the step failed with {type(error).__name__}: {first_line(error)}")


def _autograd_works() -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            torch.ones((), device="cpu", requires_grad=True).sum().backward()
    except RuntimeError:
        return False
    return True


def _send(writing: int, answer: tuple[str, Any]) -> None:
    try:
        data = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever a step puts into its trace
        failed = TraceError(f"the trace of the step cannot be sent: {type(error).__name__}: {first_line(error)}")
        data = pickle.dumps(("error", failed))
    left = memoryview(_HEADER.pack(len(data)) + data)
    while left:
        left = left[os.write(writing, left) :]
