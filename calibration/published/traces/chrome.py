"""Reads a trace that the PyTorch profiler exported (``export_chrome_trace``): its events, its GPU, its versions.

Fields by version of torch: categories are ``cpu_op``, ``user_annotation``, ``cuda_runtime``, ``cuda_driver``,
``kernel``, ``gpu_memcpy`` and ``gpu_memset``; torch 1.9 writes ``Operator``, ``Runtime``, ``Kernel``, ``Memcpy`` and
``Memset``, and files annotations under operators. ``correlation`` ties a kernel to the runtime call that launched it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.calibration.measuring.events import Kind, RawEvent
from placer.errors import PlacerError

_KINDS: dict[str, Kind] = {
    "cpu_op": "op", "user_annotation": "annotation", "cuda_runtime": "runtime", "cuda_driver": "runtime",
    "kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
    "Operator": "op", "Runtime": "runtime", "Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
}  # fmt: skip
_WANTED = "give a file that torch.profiler.profile(...).export_chrome_trace(FILE) wrote (.json or .json.gz)"
#: Torch 1.9 has no category for annotations; their names have this mark, which no op's has.
_ANNOTATION = "#"


class TraceFileError(PlacerError, ValueError):
    """A file that is no trace of the PyTorch profiler."""


@dataclass(frozen=True)
class ChromeTrace:
    """The events of a trace file, and what it says of the machine; "" and 0 where it does not say.

    ``cuda`` is the version of CUDA's runtime (12040 is 12.4), ``hip`` that of AMD's.
    """

    name: str
    gpu: str
    events: tuple[RawEvent, ...]
    torch: str = ""
    cuda: int = 0
    hip: int = 0

    @property
    def software(self) -> str:
        """The versions that the file tells, closest to the user first; "" where it tells none."""
        cuda, hip = _version(self.cuda, 1000, 10), _version(self.hip, 10_000_000, 100_000)
        known = {"torch": self.torch, "CUDA": cuda, "HIP": hip}
        return ", ".join(f"{name} {version}" for name, version in known.items() if version)


def read_trace(path: Path) -> ChromeTrace:
    """Read one file, compressed or not. Raises TraceFileError where it is missing or no such trace."""
    try:
        content = path.read_bytes()
        data = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except OSError as error:
        raise TraceFileError(f"cannot read {path}: {error.strerror or error}; {_WANTED}") from error
    except (ValueError, EOFError, RecursionError) as error:
        raise TraceFileError(f"{path} holds no JSON ({error}); {_WANTED}") from error
    head = data if isinstance(data, dict) else {}
    found = head.get("traceEvents", data)
    try:
        events = tuple(_events(found)) if isinstance(found, list) else ()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceFileError(f"{path} holds an event of category op or kernel without its fields; {_WANTED}") from error
    if not events:
        raise TraceFileError(f"{path} holds no op and no kernel; {_WANTED}")
    devices = head.get("deviceProperties") or [{}]
    return ChromeTrace(
        path.name.partition(".")[0], str(devices[0].get("name", "")), events, torch=str(head.get("torch_version", "")),
        cuda=int(head.get("cuda_runtime_version", 0)), hip=int(head.get("hip_runtime_version", 0)),
    )  # fmt: skip


def _version(number: int, major: int, minor: int) -> str:
    """"12.4" for 12040, as CUDA counts; HIP counts 60443483 for 6.4."""
    return f"{number // major}.{number % major // minor}" if number else ""



def _events(found: list[Any]) -> Iterator[RawEvent]:
    """The events that have a duration, with numbers of their own for ops: later versions number other events too."""
    number = 0
    threads: dict[tuple[Any, Any], int] = {}
    for entry in found:
        kind = _KINDS.get(entry.get("cat") or "") if isinstance(entry, dict) and entry.get("ph") == "X" else None
        if kind is None:
            continue
        number += 1
        yield _event(entry, kind, -number, threads.setdefault((entry.get("pid"), entry.get("tid")), len(threads) + 1))


def _event(entry: Mapping[str, Any], kind: Kind, number: int, thread: int) -> RawEvent:
    args = entry.get("args") or {}
    name = str(entry["name"])
    if kind == "op" and _ANNOTATION in name:
        kind = "annotation"
    start = round(float(entry["ts"]) * 1000)
    end = start + round(float(entry.get("dur", 0)) * 1000)
    if kind in ("op", "annotation"):
        return RawEvent(name, start, end, int(args.get("Sequence number", -1)), thread, number, kind)
    launch = int(args.get("correlation", 0))
    if kind == "runtime":
        return RawEvent(name, start, end, -1, thread, launch, kind)
    return RawEvent(name, start, end, -1, 0, launch, kind, stream=int(args.get("stream", 0)))
