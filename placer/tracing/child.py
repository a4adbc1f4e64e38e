"""Calls a function in a forked child: whatever it does to objects, modules and global state ends with the child.

Only the result comes back, pickled, or the error as a class and its message. The child never touches an accelerator,
and neither a crash, a hang nor a lack of memory in it reaches the process that asked. The function is called once at
most: what it does outside of the process, it does once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import gc
import os
import pickle
import random
import select
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import tee
from operator import methodcaller
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from placer import machine
from placer.errors import TraceError, first_line
from placer.tracing.isolation import numpy_random

if hasattr(os, "fork"):  # not on Windows
    from placer.tracing.unshared import hold, let_go, let_nobody_watch, own_files, own_memory

T = TypeVar("T")

#: The longest that a child may take, in seconds.
LIMIT_SECONDS = 20.0
#: How often the parent looks whether the child has ended, and how much memory it has taken. A look at the memory of a
#: large process takes a while: looking takes a fifth of the time at most.
_LOOK_SECONDS = 0.05
_PAUSES = 4
#: The share of the free memory that a child may take.
_MEMORY_SHARE = 0.9
#: How often a child is forked at most, until it finds that no other thread was drawing from torch's generator; it
#: waits for so many seconds.
_ATTEMPTS = 20
_DRAW_SECONDS = 0.5
#: What a child sends first, once it has found that. The length of its answer comes next.
_READY = b"r"
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


#: As the C library's ``fork``, but it runs no handlers: glibc 2.34 and musl 1.2.2, POSIX 2024. None where it has none.
_FORK_ALONE: Any = getattr(ctypes.PyDLL(None), "_Fork", None) if hasattr(os, "fork") else None


def call(function: Callable[[], T], *, limit_seconds: float = LIMIT_SECONDS, began: float | None = None) -> T:
    """The result of ``function()``, called in a forked child of one thread. It has to pickle.

    ``began``: when time began to count, by ``time.monotonic``; None is now.

    Raises:
        NoChild: the function has to be called in this process.
        Ended: the child crashed.
        TookTooLong: the child took longer than ``limit_seconds``, and was ended.
        TraceError: of the class that the function raised, with its message; for any other exception TraceError itself.
    """
    if not hasattr(os, "fork"):
        raise NoChild
    deadline = (time.monotonic() if began is None else began) + limit_seconds
    most_bytes = int(_MEMORY_SHARE * machine.memory("cpu")[0])
    answer, status = None, None
    for _ in range(_ATTEMPTS):
        pid, reading = _forked(function, limit_seconds, most_bytes)
        try:
            ready = _is_ready(reading, deadline)
            if ready:
                answer = _received(reading, pid, deadline, most_bytes)
            if answer is None and time.monotonic() >= deadline:
                raise TookTooLong(_too_long(pid, limit_seconds))
        finally:
            os.close(reading)
            status = _buried(pid)
        if ready or not _met_a_draw(status):
            break
    else:
        raise TookTooLong(
            "no process that traces the step could begin, as other threads draw random numbers of torch all the time; "
            "ask before they start"
        )
    if answer is None:
        raise Ended(f"the step ends the process that it runs in{_how(status)}, here one that only traces it")
    succeeded, value = answer
    if not succeeded:
        raise value
    result: T = value
    return result


# --- the parent -------------------------------------------------------------------------------------------------------


def _forked(function: Callable[[], object], limit_seconds: float, most_bytes: int) -> tuple[int, int]:
    """The number of a child that calls ``function``, and the end of a pipe from it. Raises NoChild."""
    state = random.getstate()  # Python seeds its generator anew in every child
    reading, writing = os.pipe()
    held = hold()
    try:
        with _generators_at_rest():
            unnoticed = _FORK_ALONE is not None and _autograd_has_threads()
            pid = _forked_unnoticed() if unnoticed else os.fork()
        if pid == 0:
            _in_child(function, writing, state, limit_seconds, most_bytes)
    except OSError as error:  # no further process is allowed
        os.close(reading)
        raise NoChild from error
    finally:
        os.close(writing)
        let_go(held)
    _lead_a_group(pid)
    return pid, reading


def _autograd_has_threads() -> bool:
    """Whether a backward pass beside an accelerator has started threads for torch's autograd.

    Its engine refuses to work in a child from then on, where a handler of its own saw the fork. What it needs them for
    is work on an accelerator, which no child does.
    """
    names = Path("/proc/self/task").glob("*/comm")  # none outside of Linux
    with contextlib.suppress(OSError):  # a thread that has just ended
        return any(name.read_bytes().startswith(b"pt_autograd") for name in names)
    return False


def _forked_unnoticed() -> int:
    """As ``os.fork``, but no library's own handler runs, torch's engine's among them.

    Nor does glibc then wait for its own locks (those of malloc, say).

    Between the three calls no other thread of Python may run. The child would wait for it for ever; and from Python
    3.13 on, the parent holds a lock of the interpreter's. So they are made in one call, inside of which only functions
    written in C run.
    """
    python, call = ctypes.pythonapi, methodcaller("__call__")
    afterwards = {True: python.PyOS_AfterFork_Child, False: python.PyOS_AfterFork_Parent}
    pids, same_pids = tee(map(_FORK_ALONE, map(call, [python.PyOS_BeforeFork])))  # which ignores what it is given
    are_children = map((0).__eq__, same_pids)
    (pid, _), *_ = list(zip(pids, map(call, map(afterwards.__getitem__, are_children)), strict=False))
    if pid < 0:
        raise OSError("no process could be forked")
    return int(pid)


@contextlib.contextmanager
def _generators_at_rest() -> Iterator[None]:
    """No other thread draws random numbers of numpy in the body, and hardly one of torch.

    The lock of a generator would stay taken in a child. That of torch's cannot be held here: to read its state waits
    for a draw, and the next one has to wait for Python. One that has not, as it was under way, ends the child.
    """
    generator = numpy_random()
    with contextlib.nullcontext() if generator is None else generator.get_bit_generator().lock:
        torch.default_generator.get_state()
        yield


def _is_ready(reading: int, deadline: float) -> bool:
    """Whether a child has begun; False where it ended before, or did not begin in time."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    return bool(poll.poll(max(deadline - time.monotonic(), 0.0) * 1e3)) and bool(os.read(reading, len(_READY)))


def _received(reading: int, pid: int, deadline: float, most_bytes: int) -> tuple[bool, Any] | None:
    """Whether the function succeeded, and its result or error; None where the child ended, or took too long, before.

    Raises TraceError where it takes more memory than ``most_bytes``.
    """
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = bytearray()
    wanted = _HEADER.size
    ended, pause = False, _LOOK_SECONDS
    while len(data) < wanted:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if not poll.poll(0 if ended else min(left, pause) * 1e3):
            if ended:  # a process of its own may still hold the pipe
                return None
            ended = _has_ended(pid)  # what it sent before that is still to be read
            began = time.monotonic()
            if _private_bytes(pid) > most_bytes:
                raise TraceError(
                    f"the step needs more memory than there is free here ({most_bytes / 2**30:.3g} GB can be taken); "
                    "give a smaller batch"
                )
            pause = max(_LOOK_SECONDS, _PAUSES * (time.monotonic() - began))
            continue
        part = os.read(reading, 1 << 20)
        if not part:
            return None
        data += part
        if len(data) >= _HEADER.size:
            wanted = _HEADER.size + _HEADER.unpack_from(data)[0]
    answer: tuple[bool, Any] = pickle.loads(memoryview(data)[_HEADER.size :])  # noqa: S301 - from this process's own child
    return answer


def _has_ended(pid: int) -> bool:
    """Whether the child has, without taking its status."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # something else has taken its status
        return True


def _private_bytes(pid: int) -> int:
    """The memory that the child alone has: what it allocated, and the pages of its parent that it wrote to.

    The latter are copied then, which no limit of the system counts. 0 outside of Linux, where nobody may ask.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:"))


def _too_long(pid: int, limit_seconds: float) -> str:
    slow = f"tracing one step takes longer than {limit_seconds:g} s here"
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S":
            return (
                f"{slow}, as it waits for something: the process that traces it has no other threads, and no workers, "
                "of the one that asks, and the locks that those hold stay held; leave what waits for them out of the "
                "step, or ask before they start"
            )
    return f"{slow}; give a smaller batch"


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


def _met_a_draw(status: int | None) -> bool:
    """Whether a child that had not begun ended as it found torch's generator taken; so it is where nobody knows."""
    return status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM)


def _how(status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        return f" ({signal.Signals(os.WTERMSIG(status)).name})"
    return f" (exit code {os.WEXITSTATUS(status)})" if status is not None and os.WIFEXITED(status) else ""


# --- the child --------------------------------------------------------------------------------------------------------


def _in_child(
    function: Callable[[], object], writing: int, state: Any, limit_seconds: float, most_bytes: int
) -> NoReturn:
    """Call the function, send what comes of it, and end: no handler, buffer or thread of the parent's is run again."""
    try:
        _end_where_torch_draws()
        os.write(writing, _READY)
        random.setstate(state)
        _stand_alone(writing, limit_seconds)
        _limit_memory(most_bytes)
        _send(writing, _answer(function))
    finally:
        os._exit(1)


def _end_where_torch_draws() -> None:
    """End this process where another thread of the parent's drew from torch's generator: its lock stays taken."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, _DRAW_SECONDS)
    torch.default_generator.get_state()
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _stand_alone(writing: int, limit_seconds: float) -> None:
    """Let go of all that the process shares with its parent, but the pipe to it."""
    _lead_a_group(0)
    let_nobody_watch()
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


def _limit_memory(most_bytes: int) -> None:
    """Have allocations fail here before the system has to end a process."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit, hard = now + most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    except (ImportError, OSError, ValueError):  # not Linux
        return


def _answer(function: Callable[[], object]) -> tuple[bool, Any]:
    try:
        return True, function()
    except BaseException as error:  # noqa: BLE001 - the boundary to the user's code, SystemExit included
        if not _autograd_works():
            return False, NoChild()
        cause = error.__cause__ if isinstance(error, TraceError) and error.__cause__ is not None else error
        if _asks_the_parent(cause):
            return False, TraceError(
                f"the step takes something from a worker process, a pipe or a socket ({type(cause).__name__}: "
                f"{first_line(cause)}), which the process that traces it does not have; take that before the step, and "
                "give it to the step as an argument, such as its batch"
            )
        if isinstance(error, TraceError):
            return False, type(error)(str(error))
        return False, TraceError(f"tracing the step failed with {type(error).__name__}: {first_line(error)}")


def _autograd_works() -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            torch.ones((), device="cpu", requires_grad=True).sum().backward()
    except RuntimeError:
        return False
    return True


def _asks_the_parent(error: BaseException) -> bool:
    """Whether an error, or a cause of it, comes of a pipe or socket that leads nowhere here, or is raised by
    ``multiprocessing``, which deals with no process that is not the child's own."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        if isinstance(cause, EOFError) or getattr(cause, "errno", None) == errno.ENOTSOCK:
            return True
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        if frames and str(frames[-1].f_globals.get("__name__")).startswith("multiprocessing."):
            return True
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return False


def _send(writing: int, answer: tuple[bool, Any]) -> None:
    try:
        data = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - whatever a step puts into its trace
        failed = TraceError(f"the trace of the step cannot be sent: {type(error).__name__}: {first_line(error)}")
        data = pickle.dumps((False, failed))
    left = memoryview(_HEADER.pack(len(data)) + data)
    while left:
        left = left[os.write(writing, left) :]
