"""Every rank of a distributed run gets the same answer, with real processes, and nobody waits for anybody."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from placer import machine, profile
from placer.decision import ranks
from placer.decision.decision import Decision
from placer.profile.profile import Profile
from placer.workload import make_workload

#: Each rank reads a profile of its own, in which another number of threads is the fastest.
PROGRAM = """
import sys, torch, placer, os
from torch import nn
rank, folder = int(sys.argv[1]), sys.argv[2]
os.environ["WORLD_SIZE"] = "2"
torch.set_num_threads(int(sys.argv[3]))
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
model = nn.Linear(300, 300)
if rank == 1:
    torch.distributed.barrier()   # the other one decides first
options = dict(devices="cpu", threads="tune", profile=f"{folder}/{rank}.json", move=False)
first = placer.choose(model, (64, 300), **options)
again = placer.choose(model, (32, 300), **options)
if rank == 0:
    torch.distributed.barrier()
print(first.device, first.threads, again.threads)
print(first.reason)
torch.distributed.destroy_process_group()
"""


def faster_with(found: Profile, threads: int) -> Profile:
    """One in which the CPU is ten times as fast with that many threads."""
    fit = found.fit("cpu")
    fast = dataclasses.replace(fit, threads=threads, rates={k: v * 10 for k, v in fit.rates.items()}
                               | {"dispatch_seconds": 1e-7})  # fmt: skip
    return dataclasses.replace(found, fits=(dataclasses.replace(fit, threads=1), fast))


def test_every_rank_gets_the_first_ones_answer(handmade_profile: Profile, tmp_path: Path) -> None:
    now = torch.get_num_threads()
    for rank, threads in enumerate((5, 6)):
        profile.save(faster_with(handmade_profile, threads), tmp_path / f"{rank}.json")
    commands = [[sys.executable, "-c", PROGRAM, str(rank), str(tmp_path), str(now)] for rank in (0, 1)]
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    outputs = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert [out.splitlines()[0] for out, _ in outputs] == ["cpu 5 5", "cpu 5 5"]
    assert "first rank" not in outputs[0][0]
    assert "as the first rank chose for all" in outputs[1][0]


#: Started by torchrun, before there is a process group: the backend may depend on the answer.
LAUNCHED = """
import os, sys, torch, placer
from torch import nn
rank, folder = os.environ["RANK"], sys.argv[1]
torch.set_num_threads(int(sys.argv[2]))
found = placer.choose(nn.Linear(300, 300), (64, 300), devices="cpu", threads="tune", profile=f"{folder}/{rank}.json")
open(f"{folder}/answer-{rank}", "w").write(f"{found.device} {found.threads}")
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_ranks_started_by_torchrun_agree_before_there_is_a_group(handmade_profile: Profile, tmp_path: Path) -> None:
    for rank, threads in enumerate((5, 6)):
        profile.save(faster_with(handmade_profile, threads), tmp_path / f"{rank}.json")
    (tmp_path / "script.py").write_text(LAUNCHED)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(tmp_path / "script.py"), str(tmp_path), str(torch.get_num_threads()),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    answers = {(tmp_path / f"answer-{rank}").read_text() for rank in (0, 1)}
    assert len(answers) == 1
    assert answers < {"cpu 5", "cpu 6"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> torch.distributed.Store:
    """A run of two processes, of which this is one."""
    shared = torch.distributed.HashStore()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(ranks, "_store", lambda: shared)
    return shared


def decision(device: str) -> Decision:
    return Decision(device, 2, 0.9, f"{device}: because")


@pytest.mark.usefixtures("store")
def test_ranks_agree_on_the_kind_and_keep_their_own_accelerator() -> None:
    work = make_workload(nn.Linear(2, 2), (1, 2))
    assert ranks.agreed(decision("cuda"), ("cpu", "cuda"), work).device == "cuda"
    second = ranks.agreed(decision("cpu"), ("cpu", "cuda:1"), work)
    assert (second.device, second.confidence) == ("cuda:1", None)
    assert second.reason == "cuda:1: as the first rank chose for all (here: cpu: because)"
    other = ranks.agreed(decision("cpu"), ("cpu", "cuda:1"), make_workload(nn.Linear(2, 3), (1, 2)))
    assert other.device == "cpu"  # another model is another question


@pytest.mark.usefixtures("store")
def test_a_store_that_is_gone_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise torch.distributed.DistNetworkError("connection reset")

    monkeypatch.setattr(ranks, "_store", broken)
    own = decision("cpu")
    assert ranks.agreed(own, ("cpu",), make_workload(nn.Linear(2, 2), (1, 2))) is own


def test_a_process_of_its_own_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not ranks.distributed()
    assert ranks.own_devices() is None
    own = decision("cpu")
    assert ranks.agreed(own, ("cpu",), make_workload(nn.Linear(2, 2), (1, 2))) is own


def test_a_rank_drives_its_own_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ("cuda", "cuda:1"))
    monkeypatch.setenv("WORLD_SIZE", "4")
    for local, expected in (("0", "cuda"), ("1", "cuda:1"), ("3", "cuda:1")):
        monkeypatch.setenv("LOCAL_RANK", local)
        assert ranks.own_devices() == ("cpu", expected)
    monkeypatch.setattr(machine, "accelerators", lambda: ())
    assert ranks.own_devices() is None
