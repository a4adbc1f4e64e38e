"""Every rank of a distributed run gets the same answer, with real processes, and nobody waits for anybody."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import placer
from placer import machine, profile
from placer.decision import ranks
from placer.decision.decision import Decision
from placer.profile.profile import Profile
from placer.workload import check_devices_here, make_workload


def faster_with(calibration: Profile, threads: int) -> Profile:
    """One in which the CPU is ten times as fast with that many threads."""
    fit = calibration.fit("cpu")
    rates = {name: 10 * value for name, value in fit.rates.items()} | {"dispatch_seconds": 1e-7}
    return replace(calibration, fits=(replace(fit, threads=1), replace(fit, threads=threads, rates=rates)))


def started(folder: str, threads: int) -> str:
    """What a rank does before there is a process group: the backend may depend on the answer.

    Each rank reads a profile of its own, in which another number of threads is the fastest.
    """
    torch.set_num_threads(threads)
    profile_of_rank = f"{folder}/{os.environ['RANK']}.json"
    tuned = placer.Options(threads="tune")
    placement = placer.choose(nn.Linear(300, 300), (64, 300), devices="cpu", options=tuned, profile=profile_of_rank)
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return f"{placement.device} {placement.threads}"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_ranks_started_by_torchrun_agree_before_there_is_a_group(handmade_profile: Profile, tmp_path: Path) -> None:
    """By the agent that torchrun is, in processes that need not import torch again."""
    for rank, threads in enumerate((5, 6)):
        profile.save(faster_with(handmade_profile, threads), tmp_path / f"{rank}.json")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        start_method="fork",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id="test",
        max_restarts=0,
        monitor_interval=0.1,
    )
    answers = elastic_launch(config, started)(str(tmp_path), torch.get_num_threads())
    assert len(answers) == 2
    assert set(answers.values()) in ({"cpu 5"}, {"cpu 6"})


def decision(device: str) -> Decision:
    return Decision(device, 2, 0.9, f"{device}: because")


def test_ranks_agree_on_the_kind_and_keep_their_own_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store of their group; one that is gone is no error."""
    work, other = (make_workload(nn.Linear(2, units), (1, 2)) for units in (2, 3))
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert not ranks.distributed()  # a group of one
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
        assert ranks.agreed(decision("cuda"), ("cpu", "cuda"), work).device == "cuda"
        second = ranks.agreed(decision("cpu"), ("cpu", "cuda:1"), work)
        assert (second.device, second.confidence) == ("cuda:1", None)
        assert second.reason == "cuda:1: as the first rank chose for all (here: cpu: because)"
        assert ranks.agreed(decision("cpu"), ("cpu", "cuda:1"), other).device == "cpu"  # another model
        more = replace(decision("cpu"), threads=5)
        assert ranks.agreed(more, ("cpu",), other) is more
        tuned = ranks.agreed(more, ("cpu",), other, tuned=True)  # where threads were tuned, they are the first rank's
        assert (tuned.device, tuned.threads, tuned.confidence) == ("cpu", 2, 0.9)
        assert ranks.agreed(decision("mps"), ("mps",), other) == decision("mps")  # nothing of that kind here

        def gone() -> None:
            raise torch.distributed.DistNetworkError("connection reset")

        monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", gone)
        assert ranks.agreed(more, ("cpu",), work) is more
    finally:
        torch.distributed.destroy_process_group()


def test_a_rank_drives_its_own_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ("cuda", "cuda:1"))
    for world, local, expected in (
        ("4", "0", "cuda"),
        ("4", "1", "cuda:1"),
        ("4", "3", "cuda:1"),
        ("2", "", None),
        ("1", "1", None),
    ):
        monkeypatch.setenv("WORLD_SIZE", world)
        monkeypatch.setenv("LOCAL_RANK", local)
        assert check_devices_here(None, ranks.own_accelerator()) == (expected and ("cpu", expected))


def test_a_run_without_a_store_keeps_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    work, alone = make_workload(nn.Linear(2, 2), (1, 2)), decision("cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "here", "MASTER_PORT": "none"}.items():
        ranks._launchers_store.cache_clear()
        assert ranks.agreed(alone, ("cpu", "cuda"), work) is alone
        monkeypatch.setenv(name, value)
    ranks._launchers_store.cache_clear()
    assert ranks.agreed(alone, ("cpu", "cuda"), work) is alone
    ranks._launchers_store.cache_clear()
