"""Tries one device: a small op, and a short profiler session over known kernels.

Runs in a process of its own (``python -m placer.cli.trial cuda:1``), so that neither a device context nor a broken
device stays with the caller.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

#: Seconds that a device may take to answer: loading torch and creating a context take up to half a minute.
LIMIT_SECONDS = 120.0
#: Kernels of the profiler session.
CHAIN = 64
#: Begins the line of the answer: libraries may print lines of their own.
_MARK = "placer trial: "


def try_device(device: str, *, limit_seconds: float = LIMIT_SECONDS) -> dict[str, Any]:
    """What came back from a device; see ``answer``. Where nothing did, ``error`` says so. Raises nothing."""
    command = [sys.executable, "-m", "placer.cli.trial", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"it did not answer within {limit_seconds:.0f} s"}
    except OSError as error:
        return {"error": f"no process could be started: {error.strerror or error}"}
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return found
    how = f"by signal {-done.returncode}" if done.returncode < 0 else f"with exit code {done.returncode}"
    last = done.stderr.strip().splitlines()[-1:]
    return {"error": f"the process that tried it ended {how}{f': {last[0]}' if last else ''}"}


def answer(device: str) -> dict[str, Any]:
    """``first_op_seconds`` (with the context), ``error`` (None: the op was right), and what the profiler saw.

    ``ops_seen`` and ``kernels_seen`` are out of ``launched``; ``kernels_seen`` is None on a device whose kernels
    torch's profiler does not report. ``profiler_error`` says why it could not run.
    """
    import torch

    started = time.perf_counter()
    found: dict[str, Any] = {"error": None}
    try:
        total = int((torch.arange(8, device=device) * 2).sum())
        found["first_op_seconds"] = time.perf_counter() - started
        if total != 56:
            return {**found, "error": f"it computed {total} where 56 is right"}
    except Exception as error:  # noqa: BLE001  a device that is not usable may raise anything; the report shows it
        return {"error": _line(error)}
    try:
        found.update(_profiled(device))
    except Exception as error:  # noqa: BLE001  as above
        found["profiler_error"] = _line(error)
    return found


def _profiled(device: str) -> dict[str, Any]:
    """A chain of one op, recorded."""
    import torch
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    reports = torch.device(device).type == "cuda"
    tiny = torch.ones(8, device=device)
    tiny.neg_()
    float(tiny.sum())
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if reports else [])]
    with profile(activities=activities) as session:
        for _ in range(CHAIN):
            tiny.neg_()
        float(tiny.sum())  # waits for the device
    events = [event for event in session.events() or () if event.name == "aten::neg_"]
    host = [event for event in events if event.device_type == DeviceType.CPU]
    kernels = sum(len(event.kernels) for event in host) if reports else None
    return {"launched": CHAIN, "ops_seen": min(len(host), CHAIN), "kernels_seen": kernels}


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


if __name__ == "__main__":
    print(_MARK + json.dumps(answer(sys.argv[1])))
