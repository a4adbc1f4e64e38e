"""How fast this CPU is: read in a new process that has nothing of the user's, and remembered once it was quiet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import placer
from placer import machine, profile
from placer.machine import MeasuredSpeeds
from placer.pricing import CpuSpeeds, speeds
from placer.pricing.speeds import (
    NotRead,
    as_nearest,
    beside,
    cpu_speeds,
    in_new_process,
    small_step_seconds,
    speeds_path,
)

FACTS = machine.fingerprint()
INTEL = profile.load("intel-xeon-avx512-2-core")
QUIET = CpuSpeeds(1e-6, 2e11, 3e10, 1e11, 2e10, region_seconds=2e-6)


REAL_READ_APART = speeds.read_apart
Readings = Callable[..., list[int]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Readings:
    """Readings, one after another, the last one from then on; what it returns grows by one with each."""

    def give(*readings: CpuSpeeds | NotRead) -> list[int]:
        taken: list[int] = []

        def read(_: Any, threads: int) -> CpuSpeeds:
            taken.append(threads)
            reading = readings[min(len(taken), len(readings)) - 1]
            if isinstance(reading, NotRead):
                raise reading
            return reading

        monkeypatch.setattr(speeds, "read_apart", read)
        return taken

    return give


def loaded(doubt: float) -> CpuSpeeds:
    return replace(QUIET, flops_per_second=5e10, doubt=doubt, note="read beside other programs")


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_a_quiet_reading_is_taken_once_for_each_number_of_threads(reads: Readings) -> None:
    taken = reads(QUIET)
    assert [cpu_speeds(FACTS, INTEL, threads) for threads in (2, 2, 1, 2, 1)] == [QUIET] * 5
    assert taken == [2, 1]
    cpu_speeds({**FACTS, "cpu": "another"}, INTEL, 2)
    assert len(taken) == 3


def test_a_reading_beside_other_programs_is_marked_used_and_taken_again_until_one_was_quiet(reads: Readings) -> None:
    taken = reads(loaded(0.4), loaded(0.5), loaded(0.2), QUIET)
    found = []
    for _ in range(6):
        found.append(cpu_speeds(FACTS, INTEL, 2))
        (kept,) = json.loads(speeds_path().read_text())["threads"].values()
        assert (kept["doubt"], kept["note"]) == (found[-1].doubt, found[-1].note)
    assert [speeds.doubt for speeds in found] == [0.4, 0.4, 0.2, 0.0, 0.0, 0.0]
    assert len(taken) == 4


@pytest.mark.parametrize("damage", ["", "[]", '{"threads": 3}', "\x00", "\udcff", -1.0, 0.0, "fast", None, {}])
def test_speeds_that_cannot_be_read_are_measured_again(damage: Any, reads: Readings) -> None:
    taken = reads(QUIET)
    cpu_speeds(FACTS, INTEL, 2)
    text = speeds_path().read_text()
    wrong = json.loads(text)
    wrong["threads"]["2"]["flops_per_second"] = damage
    whole = isinstance(damage, str) and damage != "fast"
    speeds_path().write_bytes((damage if whole else json.dumps(wrong)).encode(errors="surrogateescape"))
    cpu_speeds(FACTS, INTEL, 2)
    assert len(taken) == 2
    assert speeds_path().read_text() == text


def test_a_speed_that_cannot_be_read_is_the_nearest_machines_or_the_last_one(reads: Readings) -> None:
    reads(NotRead("no memory is left"), loaded(0.4), NotRead("no memory is left"))
    first, *others = [cpu_speeds(FACTS, INTEL, 2) for _ in range(3)]
    assert replace(first, doubt=0.0, note="") == as_nearest(INTEL, 2)
    assert "no memory is left" in first.note
    assert others == [loaded(0.4), loaded(0.4)]


# --- the new process --------------------------------------------------------------------------------------------------

#: What a process finds that could change a reading.
STATE = """
import json, sys, threading
sys.path += json.loads(sys.argv[1])["path"]
import torch
from torch.nn.modules import module
from torch.optim import optimizer
print("something that a library prints")
print(json.dumps({
    "hooks": sum(map(len, (
        module._global_forward_hooks, module._global_forward_pre_hooks, module._global_backward_hooks,
        optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks,
    ))),
    "modes": torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack(),
    "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
    "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
    "autocast": torch.is_autocast_enabled("cpu"),
    "watched": sys.gettrace() is not None or sys.getprofile() is not None or threading.gettrace() is not None,
    "imported": "sitecustomize" in sys.modules, "main": hasattr(sys.modules["__main__"], "users"),
    "accelerators": torch.cuda.is_available(),
}))
"""

#: The first estimate of a machine, by a script with everything that a script can have set; it has no guard of
#: ``__main__``. Prints what its own hooks and modes have met.
SCRIPT = """
import json, sys, threading
import torch
from torch import nn
from torch.nn.modules import module
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
import placer
from placer.pricing import speeds

print("the script runs", file=sys.stderr)
met = []
for name in ("forward_hook", "forward_pre_hook", "full_backward_hook", "parameter_registration_hook",
             "module_registration_hook", "buffer_registration_hook"):
    getattr(module, f"register_module_{name}")(lambda *_: met.append("hook"))
optimizer.register_optimizer_step_pre_hook(lambda *_: met.append("optimizer"))
optimizer.register_optimizer_step_post_hook(lambda *_: met.append("optimizer"))

class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function.__name__ in ("add", "copy_", "fill_", "linear", "mm", "ones", "relu", "sum", "tanh"):
            met.append(f"function {function}")
        return function(*args, **(kwargs or {}))

class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function) not in ("aten.empty.memory_format", "aten.detach.default"):  # of the model and its batch
            met.append(f"op {function}")
        return function(*args, **(kwargs or {}))

def watch(frame, event, argument):
    if "speed.py" in frame.f_code.co_filename:
        met.append("traced")

model = nn.Linear(84, 16)
speeds._LIMIT_SECONDS = 300.0  # however busy this machine is
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
with (
    torch.autograd.graph.saved_tensors_hooks(lambda t: met.append("saved") or t, lambda t: t),
    torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), torch.autograd.detect_anomaly(check_nan=False),
    Ops(), Functions(),
):
    met.clear()
    sys.settrace(watch)
    sys.setprofile(watch)
    threading.settrace(watch)
    state = speeds.in_new_process(sys.argv[1]).decode()
    placement = placer.choose(model, (32, 84), devices=["cpu"])
    sys.settrace(None)
    sys.setprofile(None)
answer = {"confidence": placement.confidence, "reason": placement.reason}
print(json.dumps({"met": met, "state": json.loads(state), **answer}))
"""


def test_a_reading_and_what_a_script_has_set_meet_nothing_of_each_other(tmp_path: Path) -> None:
    """A ``sitecustomize`` stands where every process of the user's would run it."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.settrace(lambda *_: None)")
    places = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", f"users = 1\n{SCRIPT}", STATE],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["met"] == []
    assert found["state"] == {
        "hooks": 0,
        "modes": 0,
        "defaults": ["torch.float32", "cpu"],
        "gradients": [True, False, False],
        "autocast": False,
        "watched": False,
        "imported": False,
        "main": False,
        "accelerators": False,
    }
    assert found["confidence"] is not None, found["reason"]
    assert done.stderr.count("the script runs") == 1
    (kept,) = json.loads(speeds_path().read_text())["threads"].values()
    assert all(kept[name] > 0.0 for name in ("dispatch_seconds", "flops_per_second", "core_bytes_per_second"))


@pytest.mark.parametrize(
    ("program", "limit", "why"),
    [
        ("raise MemoryError('no room for 128 MB')", 100.0, "MemoryError: no room for 128 MB"),
        ("import os; os._exit(3)", 100.0, "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 100.0, "exit code -9"),
        ("pass", 100.0, "exit code 0"),
        ("import time; time.sleep(1000)", 0.5, r"longer than 0\.5 s"),
    ],
)
def test_a_process_that_fails_or_hangs_says_so(
    program: str, limit: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speeds, "_LIMIT_SECONDS", limit)
    with pytest.raises(NotRead, match=why):
        in_new_process(program)


@pytest.mark.parametrize("program", ["", None, "/opt/app/bin/app", "/usr/sbin/uwsgi", sys.executable])
def test_a_program_that_embeds_python_or_is_frozen_is_not_started_again(
    program: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", program == sys.executable, raising=False)
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(NotRead, match="is no Python that can be started"):
        in_new_process("print(1)")


def test_where_no_process_can_be_started_there_is_an_answer_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a limit of processes, or in a sandbox."""

    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(speeds, "read_apart", REAL_READ_APART)
    monkeypatch.setattr(speeds.subprocess, "run", refuse)
    said = "the speed of this CPU could not be read (no process could be started"
    with pytest.warns(placer.PlacerWarning, match="could not be read"):
        placement = placer.choose(nn.Linear(84, 16), (32, 84), devices=["cpu"])
    assert placement.confidence is not None
    found = placer.explain(nn.Linear(84, 16), (32, 84), what_if=())
    assert any(said in note for note in found.notes)


RATES = ("flops_per_second", "bytes_per_second", "core_flops_per_second", "core_bytes_per_second")


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("slower", [0.2, 0.8, 1.25, 5.0])
def test_beside_others_speeds_are_the_usual_ones_as_far_as_the_reading_allows(slower: float, threads: int) -> None:
    """Half of the time was others': this CPU is as fast as was read, or up to twice as fast."""
    usual = as_nearest(INTEL, threads)
    step = small_step_seconds(INTEL, threads if threads < 16 else 1)
    shorter = {name: getattr(usual, name) / slower for name in RATES}
    reading = MeasuredSpeeds(
        threads,
        slower * step,
        region_seconds=slower * usual.region_seconds,
        others_share=0.5,
        **shorter,
    )
    found = beside(INTEL, reading, threads)
    allowed = min(max(1.0, slower / 2), slower)
    for name in ("dispatch_seconds", "region_seconds"):
        assert getattr(found, name) == pytest.approx(allowed * getattr(usual, name)), name
    for name in RATES:
        assert getattr(found, name) == pytest.approx(getattr(usual, name) / allowed), name
