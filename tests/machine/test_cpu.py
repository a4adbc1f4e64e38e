"""The CPU: usable cores, and names for it and for the machine."""

from __future__ import annotations

import os
from pathlib import Path

import joblib
import pytest

from placer import machine
from placer.machine import cpu


@pytest.mark.parametrize("most", [None, "1", "100"])
def test_usable_cores_are_what_joblib_says(most: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if most is not None:
        monkeypatch.setenv("LOKY_MAX_CPU_COUNT", most)
    assert machine.usable_cores() == joblib.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_cores_a_process_is_kept_from_are_not_usable() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert machine.usable_cores() == joblib.cpu_count() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_quota_is_a_number_of_cores(
    files: dict[str, str], cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(cpu, "CGROUP", tmp_path)
    assert cpu._container_cores() == cores


def test_machine_id_is_a_stable_file_name() -> None:
    name = machine.machine_id()
    assert name == machine.machine_id()
    assert Path(name).name == name
    assert name.isascii()
