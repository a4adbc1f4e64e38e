"""What a process shares with its children outside of its own memory stays as it is."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.errors import TraceError
from placer.profile.profile import Profile
from placer.tracing import child, unshared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def of_a_worker() -> torch.Tensor:
    loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=8, num_workers=1, multiprocessing_context="fork")
    batch: torch.Tensor = next(iter(loader))[0]
    assert batch.is_shared()
    return batch


def of_processes() -> torch.Tensor:
    return torch.ones(8, 4).share_memory_()


def anonymous() -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, 128), dtype=torch.float32).fill_(1).view(8, 4)


@pytest.mark.parametrize("make", [of_a_worker, of_processes, anonymous])
def test_shared_memory_is_read_and_never_written(make: Callable[[], torch.Tensor]) -> None:
    shared = make()
    assert child.call(lambda: shared.mul_(3).sum().item()) == 96
    assert shared.sum().item() == 32


def test_a_file_that_is_mapped_for_writing_stays(tmp_path: Path) -> None:
    held = np.memmap(tmp_path / "values", dtype=np.float32, mode="w+", shape=(8, 4))
    held[:] = 1
    mapped = torch.from_numpy(held)
    assert child.call(lambda: mapped.mul_(3).sum().item()) == 96
    assert mapped.sum().item() == 32
    held.flush()
    assert np.fromfile(tmp_path / "values", dtype=np.float32).sum() == 32


def test_more_shared_memory_than_is_copied_can_be_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unshared, "_MOST_COPIED", 0)
    shared = of_processes()
    assert child.call(lambda: shared.sum().item()) == 32
    with pytest.raises(child.Ended, match="SIGSEGV"):
        child.call(lambda: shared.mul_(3).sum().item())
    assert shared.sum().item() == 32


def test_a_model_that_processes_share_is_not_trained(calibrated: Profile) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).share_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    placer.choose(step, batch=(torch.randn(8, 4),), modules=model, optimizer=optimizer, devices="cpu", move=False)
    placer.choose(model, (8, 4), mode="train", devices="cpu", move=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_pipes_and_sockets_keep_what_is_in_them() -> None:
    here, there = multiprocessing.Pipe()
    there.send("first")
    one, other = socket.socketpair()
    other.send(b"first")

    def takes() -> Any:
        return here.recv()

    with pytest.raises(TraceError, match="EOFError"):
        child.call(takes)
    assert child.call(lambda: os.read(one.fileno(), 5)) == b""
    assert (here.recv(), one.recv(5)) == ("first", b"first")
    one.close()
    other.close()


def test_files_keep_their_place_and_their_contents(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("".join(f"{i}\n" for i in range(100_000)))
    with (tmp_path / "read").open() as read, (tmp_path / "written").open("w", buffering=1) as written:
        read.readline()
        assert child.call(lambda: (written.write("a line\n"), read.readlines()[-1])[1]) == "99999\n"
        assert read.readline() == "1\n"
        written.write("mine\n")
    assert (tmp_path / "written").read_text() == "mine\n"
