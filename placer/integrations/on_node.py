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
from typing import Any

import placer
from placer.errors import PlacerError, first_line

#: Seconds to start a worker on a node, beyond those for its answer. Ray notices a dead node within 15 s.
STARTING = 30.0
#: Where Ray says which number of threads the node itself asks for: it may have set another one for the worker.
OWN_THREADS = "PLACER_NODE_THREADS"
_THREADS = "OMP_NUM_THREADS"
#: Begins a line of the answer: libraries may print lines of their own.
_SAYS = "placer answer: "


def ask(request: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Ask a new process of this node what ``report`` says, for at most ``timeout`` seconds.

    Where ``PLACER_NODE_THREADS`` is set, it is the node's own ``OMP_NUM_THREADS``, "" for none.

    The answer has ``"fingerprint"``, and where a profile was asked for ``"profile"``: its file, compressed with zlib.
    Where that failed it has ``"error"``, a sentence; beside the fingerprint, if the process got so far.
    """
    environment = dict(os.environ)
    own = environment.pop(OWN_THREADS, None)
    if own is not None:
        environment.pop(_THREADS, None)
        environment.update({_THREADS: own} if own else {})
    reading, writing = os.pipe()  # closes when this process ends, however it ends: the other then ends too
    command = [sys.executable, "-m", __name__, json.dumps(request)]
    with subprocess.Popen(
        command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(reading)
        try:
            out, said = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            return {**_answer(late.output or b""), "error": f"it took longer than {timeout:g} s"}
        finally:
            process.kill()  # one that hangs before it looks at its input is waited for else
            os.close(writing)
    answer = _answer(out)
    if process.returncode or not answer:
        last = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return {**answer, "error": f"its process ended with exit code {process.returncode}: {last}"}
    if path := answer.pop("path", None):
        with open(path, "rb") as file:  # noqa: PTH123 - what a worker does stays short
            answer["profile"] = zlib.compress(file.read())
    return answer


def _answer(out: bytes) -> dict[str, Any]:
    """What the process said, line by line: what the node is comes first."""
    answer: dict[str, Any] = {}
    for line in out.decode(errors="replace").splitlines():
        if line.startswith(_SAYS):
            answer.update(json.loads(line.removeprefix(_SAYS)))
    return answer


def report(
    measure: bool = True, budget: float = 60.0, devices: list[str] | None = None, force: bool = False
) -> dict[str, Any]:
    """The file of this machine's profile: of the one it has if that holds, else of a new one. Says first what it is.

    Raises PlacerError, ValueError.
    """
    from placer import machine, profile

    facts = machine.fingerprint()
    _say({"fingerprint": facts})
    if not measure:
        return {}
    path = profile.default_path()
    if force or not _holds(facts, devices):
        again = path.with_name(f"{path.stem}-again.json")  # a profile in its place would be the answer
        placer.calibrate(budget=budget, devices=devices, progress=False, path=again if force else path)
        if force:
            again.replace(path)
    return {"path": str(path)}


def _say(answer: dict[str, Any]) -> None:
    print(_SAYS + json.dumps(answer), flush=True)


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
    """The process: a request in its argument, the answer in lines of its output."""
    threading.Thread(target=_end_with_the_worker, daemon=True).start()
    try:
        _say(report(**json.loads(sys.argv[1])))
    except (PlacerError, ValueError, MemoryError) as error:
        _say({"error": first_line(error)})


def _end_with_the_worker() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
