"""Workers of a real Dask cluster on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from placer import machine, profile
from placer.profile import Profile

distributed = pytest.importorskip("distributed", reason="distributed is not installed")

from placer.integrations import dask as integration  # noqa: E402 - needs distributed
from placer.integrations import on_node  # noqa: E402
from placer.integrations.dask import calibrate, choose_worker  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def client(placer_home: Path, tmp_path: Path) -> Iterator[Any]:
    """Two workers whose tasks see the test's PLACER_HOME."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "local_directory": str(tmp_path)}
    with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
        yield client


def test_workers_answer_with_the_profile_of_their_host_and_those_that_give_none_are_named(
    client: Any, handmade_profile: Profile
) -> None:
    cpu = handmade_profile.fit("cpu")
    mine = replace(handmade_profile, fits=(replace(cpu, threads=1), replace(cpu, threads=64)))
    profile.save(mine)  # what the host measured some day
    cluster = calibrate(client)
    assert not cluster.failed
    (kept,) = cluster.profiles.values()
    assert kept.created == mine.created
    assert kept.fingerprint["cores"] == machine.usable_cores()
    choice = choose_worker(nn.Linear(4, 4), (2, 4), cluster=cluster)
    assert (choice.device, choice.threads, len(choice.workers)) == ("cpu", 1, 2)
    assert client.submit(os.getpid, workers=list(choice.workers), pure=False).result(30) != os.getpid()

    gone = "tcp://127.0.0.1:1"
    answers, failed = integration._ask(client, [gone, choice.workers[0]], {"measure": False}, 0.2)
    assert not answers
    assert failed == {gone: "the worker died", choice.workers[0]: "it took longer than 0.2 s"}


def test_one_of_each_kind_is_asked_for_all_its_devices_and_one_whose_profile_is_damaged_is_named(
    placer_home: Path, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []
    workers = {f"tcp://{n}": {"nthreads": 1, "name": n, "resources": {}} for n in "ab"}
    monkeypatch.setattr(integration, "_workers", lambda _: workers)

    def _ask(_: Any, asked: list[str], request: dict[str, Any], __: float) -> Any:
        requests.append(request)
        answer = {"fingerprint": {**handmade_profile.fingerprint, "accelerators": []}, "profile": b"damaged"}
        return dict.fromkeys(asked, answer), {}

    monkeypatch.setattr(integration, "_ask", _ask)
    found = calibrate(None, budget=5)  # type: ignore[arg-type]
    assert requests == [{"measure": False}, *[{"budget": 5, "devices": None}] * 2]
    assert set(found.failed) == set(workers)
    assert "cannot keep its profile" in found.failed["tcp://a"]


def test_a_host_has_its_own_threads_whatever_dask_gives_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = machine.usable_cores() + 1
    for name in integration._LIMITS:
        monkeypatch.setenv(name, str(given))
    assert on_node.ask({"measure": False}, 60, integration._LIMITS)["fingerprint"]["threads"] != given
