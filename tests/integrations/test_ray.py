"""A real Ray cluster of two kinds of nodes on this machine: a task runs where placer says, with as many threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ray_apart import ray_apart
from torch import nn

from placer import profile
from placer.errors import PlacerError
from placer.profile import Profile
from placer.workload import make_workload

try:
    import ray
    from ray.cluster_utils import Cluster
except Exception as error:  # noqa: BLE001 - Ray fails in its own ways where another package's library is missing
    pytest.skip(f"ray cannot be imported: {error!r}", allow_module_level=True)

from placer.integrations.ray import choose_node, kinds_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
SMALL = (nn.Linear(4, 4), (2, 4))
WIDE = (nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8)), (512, 256))
#: No worker is started that has nothing to do.
SYSTEM = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}


def measured(cores: int, **facts: Any) -> Profile:
    base = profile.load_cached(profile.shipped()[0])
    return replace(base, fingerprint={**base.fingerprint, "cores": cores, **facts})


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    usual = {"include_dashboard": False, "include_log_monitor": False}
    with ray_apart(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)  # else Ray would not give a task one thread a CPU
        local = Cluster(
            True, head_node_args={**usual, "num_cpus": 1, "labels": {"pool": "small"}, "_system_config": SYSTEM}
        )
        local.add_node(**usual, num_cpus=2, wait=False, labels={"pool": "large"})
        local.wait_for_nodes()
        ray.init(address=local.address, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()
        local.shutdown()


@pytest.mark.usefixtures("_cluster")
def test_a_task_runs_on_the_chosen_kind_with_as_many_threads_as_were_priced() -> None:
    nodes = {node["Labels"]["pool"]: node["NodeID"] for node in ray.nodes()}
    choice = choose_node(*WIDE, cluster={"large": measured(2, threads=2)}, mode="train")
    assert (choice.device, choice.nodes, choice.num_cpus) == ("cpu", (nodes["large"],), 2)
    assert len(choice.fleet.rows) == 2
    assert "next comes cpu of a cloud CPU with 1 vCPU, 1 CPU" in choice.reason
    assert choice.options() == {
        "num_cpus": 2,
        "num_gpus": 0,
        "label_selector": {"ray.io/node-id": f"in({nodes['large']})"},
    }

    def where() -> tuple[str, str]:
        return ray.get_runtime_context().get_node_id(), os.environ["OMP_NUM_THREADS"]

    assert ray.get(ray.remote(where).options(**choice.options()).remote(), timeout=250) == (nodes["large"], "2")


@pytest.mark.usefixtures("_cluster")
def test_prices_decide_and_what_no_node_can_do_is_said() -> None:
    cheap = choose_node(*WIDE, objective="cost", price={"small": 1e-6, "large": 100.0})
    assert cheap.fleet.rows[0].machine.endswith("1 CPU")
    with pytest.raises(PlacerError, match=r"no node will do: cpu of .* comes closest .*target"):
        choose_node(*SMALL, target=1e-9)
    with pytest.raises(ValueError, match="a Workload says what to run already: leave out mode"):
        choose_node(make_workload(*SMALL), mode="train")
    with pytest.raises(ValueError, match="objective must be 'time' or 'cost' or 'energy', not 'fame'"):
        choose_node(*SMALL, objective="fame")
    with pytest.raises(ValueError, match="needs price"):
        choose_node(*SMALL, objective="cost")
    with pytest.raises(ValueError, match="no node is called 'm5': give the name of a node, a label or an accel"):
        choose_node(*SMALL, price={"m5": 1.0})


def test_without_a_connection_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # whatever other tests have started
    with pytest.raises(PlacerError, match=r"not connected to a Ray cluster; first call: ray\.init"):
        choose_node(*SMALL)


def described(number: int, **more: Any) -> dict[str, Any]:
    """A node as Ray describes it."""
    return {
        "NodeID": f"{number:056x}",
        "NodeManagerHostname": f"node-{number}",
        "Alive": True,
        "Labels": {"type": f"m{number % 20}"},
        "Resources": {"CPU": 8.0, **more},
    }


def test_nodes_that_are_alike_are_one_kind() -> None:
    nodes = [described(number) for number in range(1000)]
    profiles = {f"m{number}": measured(2 + number % 2) for number in range(20)}
    kinds = kinds_of(nodes, profiles, {})
    assert len(kinds) == 20
    assert {len(kind.nodes) for kind in kinds.values()} == {50}
    assert {kind.machine.count for kind in kinds.values()} == {50}
    assert set(kinds) == {kind.machine.name for kind in kinds.values()}
    prices = kinds_of(nodes, {}, {"m3": 0.1, "node-7": 0.2})
    assert sorted(len(kind.nodes) for kind in prices.values()) == [1, 50, 949]
    with pytest.raises(PlacerError, match="no node of the cluster is alive"):
        kinds_of([{**nodes[0], "Alive": False}], {}, {})


def test_a_gpu_of_a_node_is_that_of_the_catalog() -> None:
    with_card, without = described(0, GPU=2.0, **{"accelerator_type:T4": 1.0}), described(1)
    (card,), (plain,) = (kinds_of([node], {}, {}).values() for node in (with_card, without))
    assert (card.machine.gpu, card.machine.devices, card.cpus) == ("Tesla T4", ("cpu", "cuda"), 4)
    assert (plain.machine.gpu, plain.machine.devices) == ("", ("cpu",))
    assert card.machine.name == "Tesla T4 + a cloud CPU with 8 vCPUs, 8 CPUs"
