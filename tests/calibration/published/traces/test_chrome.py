"""Trace files of the PyTorch profiler, old and new, and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from placer.calibration.measuring.events import assign
from placer.calibration.published.traces import TraceFileError, read_trace


def entry(category: str, name: str, start: float, seconds: float, thread: Any = 1, **args: Any) -> dict[str, Any]:
    """One event, times in microseconds as in the file."""
    place = {"ph": "X", "cat": category, "pid": 1, "tid": thread}
    return {**place, "name": name, "ts": start, "dur": seconds, "args": args}


NEW = [
    entry("user_annotation", "ProfilerStep#1", 0, 100),
    entry("cpu_op", "aten::relu", 10, 20, **{"External id": 5, "Sequence number": 3}),
    entry("cuda_runtime", "cudaLaunchKernel", 15, 5, correlation=5, **{"External id": 5}),
    entry("kernel", "relu", 40.5, 7.25, thread=7, correlation=5, stream=7, **{"External id": 5}),
    entry("gpu_user_annotation", "ProfilerStep#1", 40, 8, thread=7),
    entry("python_function", "train.py(1): step", 0, 100),
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 15, "id": 5},
]
OLD = [
    entry("Operator", "ProfilerStep#1", 0, 100, thread="9"),
    entry("Operator", "aten::relu", 10, 20, thread="9"),
    entry("Runtime", "cudaMemcpyAsync", 15, 5, thread="9", correlation=8),
    entry("Memcpy", "Memcpy HtoD (Pageable -> Device)", 40, 7, thread="stream 7", correlation=8, stream=7),
]


def written(folder: Path, content: Any, name: str = "step.pt.trace.json") -> Path:
    path = folder / name
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return path


def test_a_kernel_finds_its_op_over_the_call_that_launched_it(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, {"traceEvents": NEW, "deviceProperties": [{"name": "T4"}]}))
    assert (found.name, found.gpu, found.software) == ("step", "T4", "")
    by_kind = {event.kind: event for event in found.events}
    assert set(by_kind) == {"annotation", "op", "runtime", "kernel"}
    assert (by_kind["kernel"].start_ns, by_kind["kernel"].end_ns) == (40_500, 47_750)
    assert (by_kind["op"].sequence, by_kind["annotation"].sequence) == (3, -1)
    assert dict(assign(found.events).work) == {by_kind["op"].number: [by_kind["kernel"]]}


@pytest.mark.parametrize("name", ["old.json", "old.json.gz"])
def test_the_first_files_file_annotations_under_operators(tmp_path: Path, name: str) -> None:
    found = assign(read_trace(written(tmp_path, {"traceEvents": OLD}, name)).events)
    assert {event.name: event.kind for event in found.host} == {"ProfilerStep#1": "annotation", "aten::relu": "op"}
    ((copy,),) = found.work.values()
    assert (copy.kind, copy.stream) == ("memcpy", 7)


@pytest.mark.parametrize(
    ("versions", "told"),
    [({"cuda_runtime_version": 12040}, "CUDA 12.4"), ({"hip_runtime_version": 60443483}, "HIP 6.4"),
     ({"torch_version": "2.9.1", "cuda_runtime_version": 13000}, "torch 2.9.1, CUDA 13.0")],
)  # fmt: skip
def test_a_file_may_tell_its_versions(tmp_path: Path, versions: dict[str, Any], told: str) -> None:
    assert read_trace(written(tmp_path, {"traceEvents": NEW, **versions})).software == told


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x1f\x8bhello", b"[1, 2", b"{}", b'{"traceEvents": 3}', b"[]", b"7"]
)
def test_a_file_that_is_no_trace_is_told_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceFileError, match=r"bad\.json holds no .*export_chrome_trace"):
        read_trace(path)


@pytest.mark.parametrize("event", [{"ph": "X", "cat": "kernel"}, {**NEW[1], "ts": "soon"}, {**NEW[1], "args": 3}])
def test_an_event_without_its_fields_is_told_so(tmp_path: Path, event: dict[str, Any]) -> None:
    with pytest.raises(TraceFileError, match="an event of category"):
        read_trace(written(tmp_path, [event]))


def test_a_missing_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match=r"cannot read .*gone\.json: .*export_chrome_trace"):
        read_trace(tmp_path / "gone.json")
