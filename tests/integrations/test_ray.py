"""A real Ray cluster on this machine: its nodes are calibrated, named where they fail, and chosen.

Everything is real but the measuring: on a node, a calibration is a shipped profile with the node's own fingerprint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ray_apart import ray_apart
from torch import nn

from placer import machine, profile
from placer.errors import PlacerError
from placer.profile import Profile
from placer.workload import make_workload

try:
    import ray
    from ray.cluster_utils import Cluster as LocalCluster
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except Exception as error:  # noqa: BLE001 - Ray fails in its own ways where another package's library is missing
    pytest.skip(f"ray cannot be imported: {error!r}", allow_module_level=True)

from placer.integrations import ray as integration
from placer.integrations.ray import ENVIRONMENT, Cluster, Node, calibrate, choose_node

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
SMALL = (nn.Linear(4, 4), (2, 4))
LARGE = (nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))), (512, 2048))
#: No worker is started that has nothing to do.
SYSTEM = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
#: Run by Python when it starts on a node: there is no placer for it, though this machine has one.
WITHOUT_PLACER = """
import sys

class Absent:
    def find_spec(self, name, *more):
        if name.partition(".")[0] == "placer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
#: Stands for the calibration in the processes that a node starts: ``python -m placer calibrate ...``.
CALIBRATION = """
import sys

def calibrate(*, path, budget, **more):
    from dataclasses import replace
    from pathlib import Path
    from placer import machine, profile
    from placer.errors import CalibrationError
    if Path(path).is_file():
        return
    if budget < 1:
        raise CalibrationError("too little was measured")
    shipped, facts = profile.load(profile.shipped()[0]), machine.fingerprint()
    cpu = replace(shipped.fit("cpu"), threads=facts["threads"])
    profile.save(replace(shipped, fingerprint=facts, fits=(cpu,)), Path(path))

if "calibrate" in sys.orig_argv:
    import placer.calibration
    placer.calibration.calibrate = calibrate
"""


def test_without_a_connection_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # whatever other tests have started
    for call in (calibrate, lambda: choose_node(*SMALL)):
        with pytest.raises(PlacerError, match=r"not connected to a Ray cluster; first call: ray\.init"):
            call()


@pytest.mark.parametrize("budget", [0, "60"])
def test_a_wrong_budget_raises_at_once(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget"):
        calibrate(budget=budget)


# A cluster of three nodes on this machine. What makes them nodes of several kinds is real: they may use fewer cores.


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def cluster(homes: Path) -> Iterator[LocalCluster]:
    usual = {"num_cpus": 2, "include_dashboard": False, "include_log_monitor": False}

    def environment(name: str, started: str, **more: str) -> dict[str, str]:
        (homes / name).mkdir()
        (homes / name / "sitecustomize.py").write_text(started)
        paths = [str(homes / name), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PLACER_HOME": str(homes / name), "PYTHONPATH": os.pathsep.join(paths), **more}

    with ray_apart():
        local = LocalCluster(
            True,
            head_node_args={
                **usual,
                "env_vars": environment("new", CALIBRATION),
                "labels": {"pool": "new"},
                "_system_config": SYSTEM,
            },
        )
        single = environment(
            "single",
            CALIBRATION,
            LOKY_MAX_CPU_COUNT="1",
            CUDA_VISIBLE_DEVICES="0,1",
            RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="1",
        )
        without = environment("without", WITHOUT_PLACER)
        local.add_node(**usual, wait=False, env_vars=single, labels={"pool": "single"})
        local.add_node(**usual, wait=False, env_vars=without, labels={"pool": "without"})
        local.wait_for_nodes()
        ray.init(address=local.address, log_to_driver=False, logging_level="ERROR")
        yield local
        ray.shutdown()
        local.shutdown()


def by_pool(cluster: Cluster) -> dict[str, Node]:
    return {node.labels["pool"]: node for node in cluster.nodes}


@dataclass(frozen=True)
class Calibrated:
    """What ``calibrate`` answered in a round in which a node failed, and in the next; what another node had before."""

    partly: Cluster
    cluster: Cluster
    before: Profile


@pytest.fixture(scope="module")
def calibrated_nodes(cluster: LocalCluster, homes: Path) -> Calibrated:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOKY_MAX_CPU_COUNT", "1")
        facts = machine.fingerprint()  # with torch's own number of threads
        before = replace(profile.load_cached(profile.shipped()[0]), fingerprint=facts)
        before = replace(before, fits=(replace(before.fit("cpu"), threads=facts["threads"]),))
        profile.save(before, homes / "single" / "profiles" / profile.default_path().name)
    return Calibrated(calibrate(budget=0.5), calibrate(budget=2), before)


def test_nodes_calibrate_themselves_and_those_that_fail_are_named(calibrated_nodes: Calibrated, homes: Path) -> None:
    partly, cluster = calibrated_nodes.partly, calibrated_nodes.cluster
    pools = by_pool(cluster)
    absent = {
        pools["without"].id: "placer is not installed there, or an older one: pip install torch-placer on every node",
    }
    assert cluster.failed == absent
    assert partly.failed == {**absent, pools["new"].id: "too little was measured"}
    new, single = (cluster.profiles[pools[name].kind] for name in ("new", "single"))
    assert set(cluster.profiles) == {integration._kind_of(profile.fingerprint) for profile in (new, single)}
    assert single.created == calibrated_nodes.before.created  # it held: a Ray task's single thread is not the node's
    assert (new.fingerprint["cores"], single.fingerprint["cores"]) == (machine.usable_cores(), 1)
    assert len(list(homes.glob("new/profiles/*.json"))) == 1  # the node keeps it
    assert f"calibrated {new.created[:10]}" in str(cluster)
    assert "2 CPUs (not calibrated)" in str(cluster)
    assert f"({pools['new'].id[:8]}) failed: too little was measured" in str(partly)


def test_a_task_runs_on_the_chosen_kind_with_as_many_threads_as_were_priced(
    calibrated_nodes: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = calibrated_nodes.cluster
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8))
    choice = choose_node(model, (512, 256), cluster=cluster, mode="train")
    assert choice.device == "cpu"
    assert "next comes cpu of" in choice.reason
    assert choice.fleet.best is not None
    assert len(choice.fleet.rows) == 3  # two kinds, and the node that was never asked
    (chosen,) = (node for node in cluster.nodes if node.id in choice.nodes)
    assert choice.options() == {
        "num_cpus": choice.num_cpus,
        "num_gpus": 0,
        "label_selector": {"ray.io/node-id": f"in({chosen.id})"},
    }

    def where() -> tuple[str, str]:
        return ray.get_runtime_context().get_node_id(), os.environ["OMP_NUM_THREADS"]

    ran, threads = ray.get(ray.remote(where).options(**choice.options()).remote(), timeout=250)
    assert ran in choice.nodes
    assert threads == str(choice.num_cpus)

    monkeypatch.setattr(ray, "__version__", "2.48.0")
    affine = choice.options()
    ran, _ = ray.get(ray.remote(where).options(**affine).remote(), timeout=250)
    assert ran == affine["scheduling_strategy"].node_id == chosen.id


def test_a_task_that_asks_for_no_gpu_sees_those_of_the_node(calibrated_nodes: Calibrated) -> None:
    there = NodeAffinitySchedulingStrategy(by_pool(calibrated_nodes.cluster)["single"].id, soft=False)
    task = ray.remote(lambda: os.environ.get("CUDA_VISIBLE_DEVICES"))
    environments: list[dict[str, Any]] = [{}, {"env_vars": ENVIRONMENT}]
    seen = [task.options(num_cpus=0, scheduling_strategy=there, runtime_env=each).remote() for each in environments]
    assert ray.get(seen, timeout=250) == ["", "0,1"]  # Ray hides them, unless it is told not to


# Simulated nodes: only Ray's description of them is made up.


def simulated(kinds: int, each: int, **more: Any) -> Cluster:
    base = profile.load_cached(profile.shipped()[0])
    profiles = {
        (f"kind-{k}",): replace(base, fingerprint={**base.fingerprint, "cores": 2 + k, "cpu": f"CPU {k}"})
        for k in range(kinds)
    }
    nodes = [
        Node(
            f"{number:056x}",
            f"node-{number}",
            kind=(f"kind-{number % kinds}",),
            labels={"ray.io/node-id": f"{number:056x}", "type": f"m{number % kinds}", "market": "spot"},
            resources={"CPU": 8.0, **more},
        )
        for number in range(kinds * each)
    ]
    return Cluster(tuple(nodes), profiles)


def test_of_a_thousand_nodes_those_of_the_best_kind_are_chosen() -> None:
    thousand = simulated(20, 50)
    choice = choose_node(*SMALL, cluster=thousand)
    kind = int(choice.nodes[0], 16) % 20
    assert len(choice.nodes) == 50
    assert "(50 nodes of that kind)" in choice.reason
    assert choice.num_cpus == min(8, thousand.profiles[f"kind-{kind}",].fingerprint["threads"])
    assert {thousand.nodes[int(node, 16)].labels["type"] for node in choice.nodes} == {f"m{kind}"}
    assert choice.options()["label_selector"] == {"ray.io/node-id": f"in({','.join(choice.nodes)})"}


def test_a_gpu_of_a_node_is_priced_by_the_catalog_and_asked_for() -> None:
    with_card = replace(simulated(1, 2, GPU=1.0, **{"accelerator_type:T4": 0.001}), profiles={})
    choice = choose_node(*LARGE, mode="train", cluster=with_card)
    assert (choice.device, choice.num_cpus, choice.num_gpus) == ("cuda", 1, 1)
    assert choice.options() == {"num_cpus": 1, "num_gpus": 1}  # all nodes are of that kind
    (group,) = with_card.groups()
    assert group.machine.gpu == "Tesla T4"
    assert "an estimate (published)" in choice.reason
    without = replace(with_card, nodes=tuple(replace(node, resources={"CPU": 8.0}) for node in with_card.nodes))
    assert choose_node(*LARGE, mode="train", cluster=without).device == "cpu"


def test_prices_by_label_and_name_decide() -> None:
    two = simulated(2, 2)

    def prices(dollars: dict[str, float]) -> list[float]:
        return sorted(group.machine.price or 0.0 for group in two.groups(dollars))

    assert prices({"m0": 1.0, "m1": 2.0}) == [1.0, 2.0]
    assert prices({"node-0": 4.0, "m0": 1.0}) == [0.0, 1.0, 4.0]
    cheap = choose_node(*SMALL, cluster=two, objective="cost", price={"m0": 100.0, "m1": 0.01})
    assert cheap.nodes == tuple(node.id for node in two.nodes if node.labels["type"] == "m1")
    with pytest.raises(ValueError, match=r"no node is called 'm9': give prices by name, label or accelerator type"):
        two.groups({"m9": 1.0})
    with pytest.raises(ValueError, match=r"the price of .* must be dollars per hour above 0"):
        two.groups({"m0": 0.0})
    with pytest.raises(ValueError, match="needs price"):
        choose_node(*SMALL, cluster=two, objective="cost")


def test_what_no_node_can_do_is_said() -> None:
    with pytest.raises(PlacerError, match=r"no node will do: cpu of CPU .* comes closest .*target"):
        choose_node(*SMALL, cluster=simulated(2, 1), target=1e-9)
    with pytest.raises(PlacerError, match=r"no node of the cluster is alive"):
        choose_node(*SMALL, cluster=Cluster(()))
    with pytest.raises(ValueError, match="a Workload says what to run already: leave out mode"):
        choose_node(make_workload(*SMALL), cluster=simulated(1, 1), mode="train")
    with pytest.raises(ValueError, match="objective must be 'time' or 'cost' or 'energy', not 'fame'"):
        choose_node(*SMALL, cluster=simulated(1, 1), objective="fame")
