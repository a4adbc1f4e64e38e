"""How fast this machine's CPU is, where nobody calibrated it: read in half a second, and remembered.

**It is read in a new process**, not in a forked child as steps are. A child inherits the user's hooks, modes, patches
and defaults, whatever kinds a later torch adds, and has not the threads of OpenMP: GNU's waits for ever in the first
loop on several threads. A new process has nothing of the user's, and he nothing of its. It costs the import of torch
once for each machine; torch's compiler, which optimizers import, stays out.

**What was read beside other programs** is too slow by up to all the time that they took. It is used, with an interval
as wide as that, and the next process reads again, until a reading was quiet.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from placer import machine
from placer.errors import PlacerError, is_out_of_memory
from placer.pricing.cpu_devices import CpuSpeeds, nearest_profile
from placer.pricing.predict import predict
from placer.profile import USUAL_KIND, Profile, cpu_kinds, data_home, kind_of, read_regular, replace_file
from placer.tracing import trace, without_compiler
from placer.workload import make_workload

#: Share of the time that other programs take on a machine that counts as quiet: what a system does of its own.
_QUIET = 0.1
#: A share of the time counts as at most this: beyond, a reading says next to nothing.
_MOST = 0.9
#: Standard deviation of log(seconds) where the speed could not be read: profiles of another class, not scaled, are
#: off by up to 56 % in the median and 120 % in one of ten (docs/dev/findings.md).
_UNREAD = 0.5


def beside(nearest: Profile, measured: machine.MeasuredSpeeds, threads: int) -> CpuSpeeds:
    """The speeds of a CPU with ``threads`` threads, by what was measured on it with some number of them, and with one.

    How fast it starts ops shows in the small step: in what it took, beside what it takes by the profile ``nearest``.
    """
    calibrated = threads if threads in nearest.threads("cpu") else 1
    slower = measured.small_step_seconds / small_step_seconds(nearest, calibrated)

    def of_all(all_together: float, one: float) -> float:
        if threads in (1, measured.threads) or measured.threads == 1:
            return one if threads == 1 else all_together
        return one * math.pow(threads, math.log(all_together / one) / math.log(measured.threads))

    read = CpuSpeeds(
        dispatch_seconds=slower * nearest.fit("cpu", calibrated).rates["dispatch_seconds"],
        flops_per_second=of_all(measured.flops_per_second, measured.core_flops_per_second),
        bytes_per_second=of_all(measured.bytes_per_second, measured.core_bytes_per_second),
        core_flops_per_second=measured.core_flops_per_second,
        core_bytes_per_second=measured.core_bytes_per_second,
        region_seconds=measured.region_seconds if threads > 1 else 0.0,
    )
    if measured.others_share < _QUIET:
        return read
    return _beside_others(read, measured.others_share, as_nearest(nearest, threads))


def _beside_others(read: CpuSpeeds, others_share: float, usual: CpuSpeeds) -> CpuSpeeds:
    """What a reading says while other programs took a share of the time.

    Alone, the CPU is as fast as was read, or faster by up to all that they took. Within that, its speeds are the
    ``usual`` ones, or those next to them.
    """
    left = 1.0 - min(others_share, _MOST)
    speeds = {}
    for name in ("dispatch_seconds", "region_seconds"):
        seconds = getattr(read, name)
        speeds[name] = min(max(getattr(usual, name), left * seconds), seconds)
    for name in ("flops_per_second", "bytes_per_second", "core_flops_per_second", "core_bytes_per_second"):
        rate = getattr(read, name)
        speeds[name] = min(max(getattr(usual, name), rate), rate / left)
    return CpuSpeeds(
        **speeds,
        doubt=min(-math.log(left) / math.sqrt(3.0), _UNREAD),  # of what lies anywhere within, from one of its ends
        note=f"the speed of this CPU was read beside other programs, which took {others_share:.0%} of its time; the "
        "next process reads it again",
    )


def small_step_seconds(profile: Profile, threads: int) -> float:
    """Seconds of the small step, as the profile prices it."""
    model, batch = machine.small_network()
    step = make_workload(model, batch=batch, mode="train", optimizer="adam", data="device")
    return predict(trace(step), profile, devices=("cpu",), threads=threads)["cpu"].step_seconds


def unread(nearest: Profile, threads: int, why: str) -> CpuSpeeds:
    """The speeds of the machine of ``nearest``, for want of this one's: ``why`` they could not be read."""
    return replace(
        as_nearest(nearest, threads),
        doubt=_UNREAD,
        note=f"the speed of this CPU could not be read ({why}): it counts as {nearest.fingerprint['cpu']}",
    )


def as_nearest(nearest: Profile, threads: int) -> CpuSpeeds:
    """The speeds of the machine of ``nearest``, with as many cores as ``threads``; these share ops as a server's do."""
    server = cpu_kinds()[USUAL_KIND]
    core = nearest.fit("cpu", 1).rates
    together = dict(core)
    if threads in nearest.threads("cpu"):
        together = dict(nearest.fit("cpu", threads).rates)
    else:
        for name in ("flops/float32", "bytes_per_second"):
            together[name] *= threads**server.scaling
    return CpuSpeeds(
        dispatch_seconds=together["dispatch_seconds"],
        flops_per_second=together["flops/float32"],
        bytes_per_second=together["bytes_per_second"],
        core_flops_per_second=core["flops/float32"],
        core_bytes_per_second=core["bytes_per_second"],
        region_seconds=server.region_seconds(threads),
    )


#: What the speeds depend on besides the number of threads and the profile.
_FIELDS = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")
#: Seconds that the new process may take, nearly all of them to import torch: 4 where Python keeps nothing compiled.
_LIMIT_SECONDS = 60.0


def cpu_speeds(facts: Mapping[str, Any], nearest: Profile, threads: int) -> CpuSpeeds:
    """The speeds of this CPU, of which ``facts`` is the fingerprint, with ``threads`` threads, beside ``nearest``.

    They are read where no quiet reading is remembered. Where they cannot be, they are those of ``nearest``. A file
    that cannot be read or written costs nothing but the next reading.
    """
    path = speeds_path()
    of = {**{name: facts.get(name) for name in _FIELDS}, "beside": nearest.created, "kind": kind_of(facts).name}
    by_threads = _remembered(path, of)
    last = by_threads.get(str(threads))
    if last is not None and last.doubt == 0.0:
        return last
    try:
        speeds = read_apart(facts, threads)
    except NotRead as error:
        return last or unread(nearest, threads, str(error))
    if last is not None and last.doubt < speeds.doubt:
        return last
    by_threads[str(threads)] = speeds
    with suppress(OSError):
        replace_file(path, msgspec.json.encode(_Remembered(of, by_threads)))
    return speeds


def speeds_path() -> Path:
    """The file that keeps this machine's speeds."""
    return data_home() / "speeds" / f"{machine.machine_id()}.json"


class _Remembered(msgspec.Struct):
    """The file: what the speeds depend on, and the speeds by number of threads."""

    of: dict[str, Any]
    threads: dict[str, CpuSpeeds]


def _remembered(path: Path, of: Mapping[str, Any]) -> dict[str, CpuSpeeds]:
    """The speeds that were read of the same machine, by number of threads."""
    with suppress(OSError, ValueError):  # those of msgspec among them
        content = msgspec.json.decode(read_regular(path), type=_Remembered)
        if content.of == of:
            return content.threads
    return {}


# --- the new process --------------------------------------------------------------------------------------------------


class NotRead(PlacerError):
    """The speed of this CPU could not be read: says why."""


#: Nothing of the user's Python: neither its environment variables nor what runs in every process (a ``sitecustomize``,
#: coverage's hook). And no compiled file is left in his folders.
_OPTIONS = ("-I", "-S", "-B")
#: No accelerator is started there: optimizers look for one, and torch loads what other packages offer it.
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
_PROGRAM = """
import json, sys
request = json.loads(sys.argv[1])
sys.path += request["path"]
from placer.pricing.speeds import answer
answer(request)
"""


def read_apart(facts: Mapping[str, Any], threads: int) -> CpuSpeeds:
    """The speeds of this CPU, of which ``facts`` is the fingerprint, read in a new process.

    Raises NotRead.
    """
    try:
        return msgspec.json.decode(in_new_process(_PROGRAM, facts=dict(facts), threads=threads), type=CpuSpeeds)
    except ValueError as error:  # those of msgspec among them
        raise NotRead(f"no speeds came back: {error}") from error


def in_new_process(program: str, **request: Any) -> bytes:
    """The last line that a Python program prints in a new process; ``sys.argv[1]`` there is the request, as JSON.

    Its ``"path"`` says where modules are, behind Python's own: those of placer and torch first. Raises NotRead.
    """
    homes = [str(Path(__file__).parents[2]), str(Path(torch.__file__).parents[1])]
    request["path"] = [*homes, *(place for place in sys.path if isinstance(place, str) and place)]
    cache = () if sys.pycache_prefix is None else ("-X", f"pycache_prefix={sys.pycache_prefix}")
    command = [_python(), *_OPTIONS, *cache, "-c", program, json.dumps(request)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **_ENVIRONMENT},
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotRead(f"it took longer than {_LIMIT_SECONDS:g} s") from error
    except (OSError, ValueError) as error:  # no further process is allowed, no memory is left
        raise NotRead(f"no process could be started: {error}") from error
    printed = done.stdout.splitlines()
    if done.returncode or not printed:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotRead(lines[-1] if lines else f"the process ended with exit code {done.returncode}")
    return printed[-1]


def _python() -> str:
    """The program that Python is here.

    Raises NotRead where it is another one, as what embeds Python may be: that one must not run a second time.
    """
    name = Path(sys.executable or "").name
    if getattr(sys, "frozen", False) or not name.lower().startswith(("python", "pypy")):
        raise NotRead(f"{name or 'the program'} is no Python that can be started")
    return sys.executable


def answer(request: Mapping[str, Any]) -> None:
    """In the new process: read the speeds, and print them."""
    faulthandler.dump_traceback_later(_LIMIT_SECONDS, exit=True)  # who asked may have been killed
    _unwatched()
    without_compiler()
    torch.set_num_threads(request["threads"])
    nearest = nearest_profile(request["facts"])
    try:
        measured = machine.measure_speeds()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        sys.exit("no memory is left for it")
    speeds = beside(nearest, measured, request["threads"])
    print(msgspec.json.encode(speeds).decode())


def _unwatched() -> None:
    """No debugger or profiler that follows into new processes sees what runs here."""
    sys.settrace(None)
    sys.setprofile(None)
    if sys.version_info >= (3, 12):
        for tool in range(6):
            if sys.monitoring.get_tool(tool) is not None:
                sys.monitoring.set_events(tool, 0)
