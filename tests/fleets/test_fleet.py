"""``placer.fleet``: one trace, one price a kind, the data it returns and its forms; and CPUs that have no name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from torch import nn

import placer
from placer import errors, pricing, tracing
from placer.decision import pipeline
from placer.fleets import Fleet, Machine, cpu_called, cpu_class, gpu_beside, machine_named
from placer.pricing import Prediction, Residence, predict
from placer.profile import Profile, gpus, load_cached, shipped_folder
from placer.tracing import trace
from placer.workload import make_workload

NET = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 3))


@pytest.fixture(scope="module")
def host() -> Profile:
    return load_cached(shipped_folder() / "amd-epyc-2-core.json")


@pytest.fixture(scope="module")
def instances() -> list[Machine]:
    return [
        Machine("m5.large", cpu_class(2), price=0.096, count=40),
        Machine("g4dn.xlarge", cpu_class(4), gpu="T4", price=0.526),
        Machine("p4d", cpu_class(12), gpu="A100", price=4.1),
        Machine("own", cpu_class(8), gpu="RTX 4090"),
    ]


@pytest.fixture(scope="module")
def fleet(instances: list[Machine]) -> Fleet:
    return placer.fleet(NET, (4096, 84), mode="train", steps=10_000, machines=instances)


def test_a_thousand_machines_take_one_trace_and_one_price_a_device_of_each_kind(
    host: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus, names = [cpu_class(count) for count in range(1, 11)], list(gpus())[:10]
    kinds = [(cpu, "") for cpu in cpus] + list(zip(cpus, names, strict=True))
    machines = [Machine(f"node-{i}", *kinds[i % 20], price=1.0 + i % 20) for i in range(1000)]
    traces, prices = Mock(wraps=tracing.trace), Mock(wraps=pricing.predict)
    monkeypatch.setattr(tracing, "trace", traces)
    monkeypatch.setattr(pipeline, "predict", prices)
    ranked = placer.fleet(NET, (64, 84), mode="infer", machines=machines)
    assert (traces.call_count, prices.call_count) == (1, 20)  # ten CPUs, which ten GPUs share
    assert {row.machine for row in ranked.rows} == {machine.name for machine in machines}
    text = ranked.to_text()
    assert "50 like node-" in text
    assert len(text.splitlines()) < 60


def test_json_is_complete(fleet: Fleet) -> None:
    plain = json.loads(fleet.to_json())
    assert set(plain) == {"schema", "rows", "workload", "objective", "target", "unit", "count", "notes", "best"}
    assert (plain["schema"], plain["unit"], plain["count"], plain["objective"]) == (1, "step", 10_000, "time")
    assert plain["best"] == fleet.rows[0].machine
    (row,) = [row for row in plain["rows"] if row["machine"] == "g4dn.xlarge"]
    of_row = {"machine", "count", "device", "devices", "gpu", "note", "verdict", "pareto", "reaches", "provenance"}
    of_cost = {"step_seconds", "low", "high", "job_seconds", "one_time_seconds", "dollars", "joules", "fits"}
    assert set(row) == of_row | of_cost | {"bounded_by"}
    assert set(row["devices"]) == {"cpu", "cuda"}
    assert row["job_seconds"] == pytest.approx(row["one_time_seconds"] + 10_000 * row["step_seconds"])
    assert row["dollars"] == pytest.approx(0.526 * row["job_seconds"] / 3600)
    assert row["gpu"] == "T4"


def test_on_one_machine_a_device_that_reaches_the_target_comes_before_a_sparing_one() -> None:
    machine = Machine("both", cpu_class(4), gpu="H100")

    def ranked(target: float | None) -> Fleet:
        return placer.fleet(NET, (16384, 84), mode="train", machines=machine, objective="energy", target=target)

    text = ranked(None).to_text()
    assert "Energy (~) is an estimate from data sheets and predicted use, not a measurement." in text
    rows = [ranked(target).rows[0] for target in (None, 1.0, 2e-3, 1e-6)]
    assert [row.device for row in rows] == ["cpu", "cpu", "cuda", "cuda"]  # the last one is the closest
    assert [row.reaches for row in rows] == [None, True, True, False]


def test_a_name_begins_no_line_and_steers_no_terminal(host: Profile) -> None:
    found = placer.fleet(NET, (64, 84), machines=Machine("a\n#SBATCH --evil\x1b[31m", host, gpu="T4", price=1.0))
    assert [line for line in found.to_slurm().splitlines() if line.startswith("#SBATCH")] == (
        ["#SBATCH --gres=gpu:t4:1"] if found.rows[0].device == "cuda" else []
    )
    assert all(line.startswith(("#", "feature.")) for line in found.to_nfd().splitlines())
    assert "\x1b" not in found.to_text()
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    assert "\x1b" not in found.to_html()


def test_a_job_is_compared_as_a_whole(instances: list[Machine]) -> None:
    part = placer.Part("train", NET, (64, 84), mode="train", count=3)
    found = placer.fleet(placer.Job([part], repeats=7), machines=instances)
    assert (found.unit, found.count) == ("job", 7)
    with pytest.raises(ValueError, match="a Job says what to run already: leave out data"):
        placer.fleet(placer.Job([part]), machines=instances, data="pinned")
    assert "7 jobs" in found.to_text().splitlines()[0]


def test_a_machine_by_name_is_a_profile_or_a_gpu(host: Profile) -> None:
    assert "cpu" in machine_named("amd-epyc-2-core", host).profile.devices()
    t4 = machine_named("T4", host)
    assert (t4.name, t4.gpu, t4.devices) == ("Tesla T4", "Tesla T4", ("cuda",))
    with pytest.raises(errors.UnknownGPU):
        machine_named("T99", host)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"objective": "fame"}, "objective must be 'time' or 'cost' or 'energy', not 'fame'"),
        ({"target": 0.0}, "target"),
        ({"target": "1h"}, "target must be seconds"),
        ({"machines": []}, "machines is empty"),
        ({"machines": [3]}, "a machine is a placer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_traced(
    host: Profile, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], says: str
) -> None:
    monkeypatch.setattr(tracing, "trace", None)
    with pytest.raises((ValueError, TypeError), match=says):
        placer.fleet(NET, (4, 84), **{"machines": [Machine("x", host)], **wrong})
    for amount in ({"price": 0.0}, {"price": float("nan")}, {"count": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(amount))} of x"):
            Machine("x", host, **amount)


def test_the_page_holds_the_table(fleet: Fleet) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    page = fleet.to_html()
    assert all(row.machine in page for row in fleet.rows)
    assert page.count('scope="row"') == len(fleet.rows)
    assert "://" not in page


#: Kubernetes, "Labels and Selectors": a prefix that is a DNS subdomain, then a name of at most 63 characters that
#: begins and ends with a letter or digit; a value is such a name, or empty.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/({_NAME})=({_NAME})")


@pytest.mark.parametrize("target", ["Net", "my model/v2 (ünïcode)!", "x" * 200, "---", "end_"])
def test_nfd_labels_follow_the_rules_of_kubernetes(host: Profile, fleet: Fleet, target: str) -> None:
    one = placer.fleet(NET, (64, 84), mode="infer", machines=[gpu_beside("T4", host)])
    text = replace(one, workload={**one.workload, "target": target}).to_nfd()
    assert text.endswith("\n")
    comment, *labels = text.splitlines()
    assert comment.startswith("# ")
    assert not comment.startswith("# +")  # which would be a directive
    facts = {}
    for line in labels:
        match = _LABEL.fullmatch(line)
        assert match, line
        assert len(match[1]) <= 63
        facts[match[1].rpartition(".")[2]] = match[2]
    assert set(facts) == {"device", "us", "low-us", "high-us", "numbers", "fits"}
    assert (facts["device"], facts["numbers"]) == ("cuda", "published")
    assert int(facts["low-us"]) <= int(facts["us"]) <= int(facts["high-us"])
    with pytest.raises(ValueError, match="nfd labels one node"):
        fleet.to_nfd()


def test_slurm_asks_for_the_gpu_of_the_best_machine(host: Profile) -> None:
    def lines(machine: Machine) -> list[str]:
        return placer.fleet(NET, (64, 84), mode="infer", steps=100, machines=[machine]).to_slurm().splitlines()

    with_gpu = lines(gpu_beside("T4", host))
    assert with_gpu[-1] == "#SBATCH --gres=gpu:t4:1"
    assert all(line.startswith("#") for line in with_gpu)
    without = lines(Machine("x", host, devices=("cpu",)))
    assert not [line for line in without if line.startswith("#SBATCH")]
    hopeless = placer.fleet(NET, (64, 84), mode="infer", machines=[Machine("x", host)], target=1e-9)
    with pytest.raises(errors.PlacerError, match="no machine to ask Slurm for: x"):
        hopeless.to_slurm()


LARGE = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
ELSEWHERE = Residence(here=False)


STEP = trace(make_workload(LARGE, (512, 1024), mode="train"))


def on(vcpus: float, profile: Profile | None = None) -> Prediction:
    profile = profile or cpu_class(vcpus)
    return predict(STEP, profile, devices=("cpu",), threads=profile.fit("cpu").threads, residence=ELSEWHERE)["cpu"]


def test_work_that_cores_share_is_faster_on_more_of_them() -> None:
    steps = [on(vcpus).step_seconds for vcpus in (0.5, 1, 2, 3, 4, 8, 16, 32)]
    assert steps == sorted(steps, reverse=True)
    assert steps[1] == pytest.approx(steps[2])  # both have one core
    assert 1.5 < steps[0] / steps[1] < 2.5  # half a core
    assert 1.5 < steps[4] / steps[5] < 2.1  # twice the cores, each with caches of its own


def test_it_is_an_estimate_whose_interval_is_wider_than_a_named_cpus() -> None:
    unnamed, named = on(4), on(4, cpu_called("c6i", 4))
    assert (unnamed.provenance, cpu_class(4).estimated) == ("published", True)
    assert unnamed.step_seconds == pytest.approx(named.step_seconds)  # Ice Lake stands for all
    assert 1.6 < unnamed.high / unnamed.step_seconds < 2.2
    assert unnamed.high / unnamed.step_seconds > 1.05 * named.high / named.step_seconds
    assert "which CPU it is is not known" in cpu_class(4).warnings[0]


@pytest.mark.parametrize("vcpus", [0, math.nan, math.inf, "8", True])
def test_what_is_no_number_above_zero_is_refused(vcpus: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="vcpus must be a number above 0"):
        cpu_class(vcpus)
