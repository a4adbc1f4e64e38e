"""What a worker of a cluster does on its node: placer answers there, in a process of its own, with plain values.

A process of its own has the node's threads and accelerators, whatever the worker was given, and its memory is given
back. It ends with the worker. Ray sends ``ask`` to its workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import placer
from placer.errors import PlacerError, first_line

#: Seconds to start a worker on a node, beyond those for its answer. Ray notices a dead node within 15 s.
STARTING = 30.0
#: Where an engine says which number of threads the node itself asks for: it may have set another one for the worker.
OWN_THREADS = "PLACER_NODE_THREADS"
_THREADS = "OMP_NUM_THREADS"
#: What a calibration may end with.
_FAILURES = (PlacerError, ValueError, MemoryError)


def ask(request: dict[str, Any], timeout: float, limits: Sequence[str] = ()) -> dict[str, Any]:
    """Ask a new process of this node what ``report`` says, for at most ``timeout`` seconds.

    ``limits`` are variables by which the engine limits the threads of its workers: the process does not see them.
    Where ``PLACER_NODE_THREADS`` is set, it is the node's own ``OMP_NUM_THREADS``, "" for none.

    The answer has ``"fingerprint"``, and where a profile was asked for ``"profile"``: its file, compressed with zlib.
    Where that failed it has ``"error"``, a sentence; beside the fingerprint, if the node got so far.
    """
    environment = {name: value for name, value in os.environ.items() if name not in limits}
    own = environment.pop(OWN_THREADS, None)
    if own is not None:
        environment.pop(_THREADS, None)
        environment.update({_THREADS: own} if own else {})
    reading, writing = os.pipe()  # closes when this process ends, however it ends: the other then ends too
    command = [sys.executable, "-m", __name__, json.dumps(request)]
    with subprocess.Popen(
        command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        os.close(reading)
        try:
            out, said = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return {"error": f"it took longer than {timeout:g} s"}
        finally:
            process.kill()  # one that hangs before it looks at its input is waited for else
            os.close(writing)
    try:
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        return {"error": f"its process ended with exit code {process.returncode}: {last}"}
    if path := answer.pop("path", None):
        with open(path, "rb") as file:  # noqa: PTH123 - what a worker does stays short
            answer["profile"] = zlib.compress(file.read())
    return answer


def report(
    measure: bool = True, budget: float = 60.0, devices: list[str] | None = None, force: bool = False
) -> dict[str, Any]:
    """The fingerprint of this machine, and the file of its profile: the one it has if that holds, else a new one.

    Or the fingerprint and why there is no profile. Raises PlacerError where not even the fingerprint is to be had.
    """
    from placer import machine, profile

    facts = machine.fingerprint()
    if not measure:
        return {"fingerprint": facts}
    path = profile.default_path()
    try:
        if force or not _holds(facts, devices):
            again = path.with_name(f"{path.stem}-again.json")  # a profile in its place would be the answer
            placer.calibrate(budget=budget, devices=devices, progress=False, path=again if force else path)
            if force:
                again.replace(path)
    except _FAILURES as error:
        return {"fingerprint": facts, "error": first_line(error)}
    return {"fingerprint": facts, "path": str(path)}


def _holds(facts: dict[str, Any], devices: list[str] | None) -> bool:
    """Whether this machine's profile is whole, still holds, and has the devices."""
    from placer import machine, profile
    from placer.errors import ProfileError

    try:
        found = profile.load(samples=False)
    except ProfileError:
        return False
    kinds = {machine.split_device(name)[0] for name in devices or machine.available_devices()}
    covered = kinds <= {machine.split_device(name)[0] for name in (*found.devices(), *found.unusable)}
    return found.complete and covered and not profile.stale_fields(found, facts)


def main() -> None:
    """The process: a request in its argument, the answer as the last line of its output."""
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    try:
        answer = report(**json.loads(sys.argv[1]))
    except _FAILURES as error:
        answer = {"error": first_line(error)}
    print(json.dumps(answer), flush=True)


def _end_with_the_worker() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
