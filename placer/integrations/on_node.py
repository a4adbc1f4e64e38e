"""What a worker of a cluster does on its node: placer answers there, in a process of its own, with plain values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from placer import machine
from placer import profile as profiles

#: Where Ray says which number of threads the node itself asks for: it may have set another one for the worker.
_THREADS, _OWN_THREADS = "OMP_NUM_THREADS", "PLACER_NODE_THREADS"
#: The worker's environment. Ray sets OMP_NUM_THREADS in a worker after it has expanded this: the node's own is kept.
#: Ray would hide all accelerators from a task that asks for none.
ENVIRONMENT = {
    _OWN_THREADS: "${OMP_NUM_THREADS}", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1", "RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1",
    "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR": "1", "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK": "1",
}  # fmt: skip


#: The command line of placer, until the worker that started it has ended.
_WITH_WORKER = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
from placer.cli import main
main(prog_name="placer")
"""


def calibrated_here(arguments: Sequence[str] | None, force: bool, timeout: float) -> dict[str, Any]:
    """What a worker does on its node. The answer has ``"fingerprint"``: what the node is.

    With ``arguments``, ``placer calibrate`` runs there for at most ``timeout`` seconds, in a process of its own: it has
    the node's threads and accelerators, whatever the worker was given. The answer then has ``"profile"``, a file's
    bytes, or ``"error"``, a sentence.
    """
    answer: dict[str, Any] = {"fingerprint": machine.fingerprint()}
    if arguments is None:
        return answer
    environment = {name: value for name, value in os.environ.items() if name not in (_THREADS, _OWN_THREADS)}
    if own := os.environ.get(_OWN_THREADS):
        environment[_THREADS] = own
    path = profiles.default_path()
    measured = path.with_name(f"{path.stem}-again.json") if force else path  # one in its place would be the answer
    command = [sys.executable, "-c", _WITH_WORKER, "calibrate", "--quiet", "--output", str(measured), *arguments]
    reading, writing = os.pipe()  # closes when this worker ends, however it ends: the process then ends too
    try:
        done = subprocess.run(
            command, stdin=reading, capture_output=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {**answer, "error": f"it took longer than {timeout:g} s"}
    finally:
        os.close(reading)
        os.close(writing)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        return {**answer, "error": said[-1].removeprefix("placer: ")}
    measured.replace(path)
    return {**answer, "profile": path.read_bytes()}


