"""What holds of every account, whatever its family; the collection itself is not part of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.calibration.suite.accounts import accounts, hosts
from placer.calibration.suite.accounts.hosts import PROFILES, Host
from placer.profile import find_gpu, load

COLLECTION = Path(__file__).resolve().parents[5] / "shared" / "gpu-data" / "accounts.jsonl"
shared = pytest.mark.skipif(not COLLECTION.is_file(), reason="no collection of accounts in ../shared")

HOSTS = [value for value in vars(hosts).values() if isinstance(value, Host)]
POINTS = [(account, point) for account in accounts() for point in account.points]


def test_each_account_is_there_once_and_each_of_its_points() -> None:
    assert len({account.id for account in accounts()}) == len(accounts())
    assert len({(account.id, point.at) for account, point in POINTS}) == len(POINTS)


def test_every_gpu_is_in_the_catalog() -> None:
    for account, point in POINTS:
        assert find_gpu(point.gpu or account.gpu).float32_tflops > 0.0


def test_a_stand_in_and_what_the_time_includes_are_told_in_words() -> None:
    for account in accounts():
        assert account.includes.endswith("."), account.id
        assert not account.stand_in.endswith("."), account.id
        assert not account.why or account.why.endswith("."), account.id


def test_both_columns_count_something_on_each_point() -> None:
    for account, point in POINTS:
        for side in ("cpu", "gpu"):
            assert any(side in part.counted and not part.on_host for part in point.parts), (account.id, point.at)
        assert all(part.count > 0.0 for part in point.parts)


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_speeds_of_a_host_are_those_of_a_cpu(host: Host) -> None:
    measured = load(host.profile).fit("cpu").rates
    speeds = host.speeds(measured)
    assert 0.3e-6 < speeds.dispatch_seconds < 5e-6
    assert 2e10 < speeds.flops_per_second < 2e13
    assert 5e9 < speeds.bytes_per_second < 5e11
    assert host.all_core_gigahertz <= host.gigahertz


@pytest.mark.parametrize(("profile", "per_clock"), [(hosts.AMD_AVX512, hosts.ZEN_4), (hosts.AMD_AVX2, hosts.ZEN_3)])
def test_the_cpu_of_a_profile_is_as_fast_as_its_profile(profile: str, per_clock: float) -> None:
    measured = load(profile).fit("cpu", 2).rates
    itself = Host("itself", profile, 2, PROFILES[profile] / per_clock, 3.7, 32, 100.0, per_clock)
    speeds = itself.speeds(measured)
    assert speeds.dispatch_seconds == pytest.approx(measured["dispatch_seconds"])
    assert speeds.flops_per_second == pytest.approx(measured["flops/float32"], rel=0.15)
    assert speeds.bytes_per_second == pytest.approx(measured["bytes_per_second"], rel=0.25)


@shared
def test_every_point_is_in_the_collection_and_none_is_forgotten() -> None:
    told = {r["id"]: r for r in map(json.loads, COLLECTION.read_text(encoding="utf-8").splitlines())}
    for account in accounts():
        labels = {p["at"] for p in told[account.id]["points"]}
        assert {point.at for point in account.points} <= labels, account.id
    rebuilt = {account.id for account in accounts()}
    high = {key for key, record in told.items() if record["rebuildability"] == "high" and record["points"]}
    assert high <= rebuilt
