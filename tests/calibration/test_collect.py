"""What ``make gpu`` runs, rehearsed on the CPU with a network and a few seconds."""

from __future__ import annotations

import json
from pathlib import Path

from placer import profile
from placer.calibration import collect
from placer.calibration.suite import entries
from placer.calibration.validation import record


def test_a_collection_is_complete_and_resumes(tmp_path: Path) -> None:
    folder = tmp_path / collect.folder_name()
    networks = [entry for entry in entries("quick") if entry.name == "actor_critic"]
    said: list[str] = []
    collect.collect(folder, devices=("cpu",), networks=networks, seconds=30.0, say=said.append)
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["fingerprint"]["cores"] >= 1
    assert environment["context_seconds"] == {}
    assert "cpu" in profile.load(folder / "profile.json").devices()
    cells = record.load(folder / "measurements.json").cells
    assert len(cells) == sum(len(n.batches) * len(n.modes) for n in networks)
    assert all(cell.predicted and cell.measured for cell in cells)

    written = (folder / "profile.json").read_bytes()
    collect.collect(folder, devices=("cpu",), networks=networks, seconds=30.0, say=said.append)
    assert (folder / "profile.json").read_bytes() == written
    again = record.load(folder / "measurements.json").cells
    assert [(cell.key, cell.measured) for cell in again] == [(cell.key, cell.measured) for cell in cells]


def test_out_of_time_leaves_the_rest_for_the_next_run(tmp_path: Path) -> None:
    networks = [entry for entry in entries("quick") if entry.name == "actor_critic"]
    said: list[str] = []
    collect.collect(tmp_path, devices=("cpu",), networks=networks, seconds=4.0, say=said.append)
    cells = record.load(tmp_path / "measurements.json").cells
    assert not cells or all(cell.measured for cell in cells)
    assert bool(cells) != any("out of time" in text for text in said)
