"""A record of single ops is read: the calls of a step, each once."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import pytest

from placer.calibration.lab.op_record import timed_calls
from placer.tracing import OpCall, TensorSpec

SPEC = TensorSpec((4, 8), (8, 1), "float32")
CALL = OpCall("aten::kthvalue", (SPEC,), (SPEC,), (3, -1, False), "forward")
SPEEDS = {"small_step_seconds": 1e-3, "flops_per_second": 1e11, "bytes_per_second": 1e10}


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.xz"])
def test_calls_are_read_with_their_middle_and_the_speeds(tmp_path: Path, suffix: str) -> None:
    step = {"name": "kthvalue", "number": 1, "threads": 2, "context": [100, False, 3, 0.0]}
    call = ["aten::kthvalue", [[[4, 8], [8, 1], "float32"]], [[[4, 8], [8, 1], "float32"]], [3, -1, False], "forward"]
    calls = [[*call, False, False, seconds] for seconds in (1e-3, 2e-3, 9e-3)]
    lines = "".join(f"{json.dumps(row)}\n" for row in ({"speeds": SPEEDS}, {**step, "calls": calls}))
    path = tmp_path / f"ops.{suffix}"
    path.write_bytes(lzma.compress(lines.encode()) if suffix.endswith("xz") else lines.encode())
    (timed,) = timed_calls(path)
    assert timed.call == CALL
    assert (timed.seconds, timed.count, timed.threads, timed.held_out) == (2e-3, 3, 2, True)
    found = asdict(timed.speeds)
    assert {name: found[name] for name in SPEEDS} == SPEEDS
    assert found["threads"] == 2
    assert SPEEDS["flops_per_second"] / 2 <= found["core_flops_per_second"] < SPEEDS["flops_per_second"]
