"""What ``make gpu`` runs, rehearsed with an accelerator, in real time: an interrupted collection goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from simulated.device import DEVICE
from torch import nn

from placer import profile
from placer.calibration import collect, fitting, plan
from placer.calibration.fitting import families
from placer.calibration.suite import Entry
from placer.calibration.validation import record
from placer.tracing import trace
from placer.workload import make_workload


def entry(name: str, width: int) -> Entry:
    return Entry(
        name=name, family="mlp", batches=(32,), modes=("train",),
        build=lambda: nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)),
        example=lambda batch: torch.randn(batch, 8),
    )  # fmt: skip


class Interrupted(Exception):
    pass


def test_a_collection_resumes_on_a_machine_with_an_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect, "entries", lambda suite: [entry("first", 16), entry("second", 24)])
    few = ("network", "matmul", "elementwise", "reduction")
    monkeypatch.setattr(plan, "PROPOSERS", {name: plan.PROPOSERS[name] for name in few})
    # Few seconds for few probes: one number of threads, and what torch imports at its first trace imported before.
    monkeypatch.setattr(fitting, "LEAST_POINTS", 3)
    monkeypatch.setattr(families, "LEAST_POINTS", 3)
    torch.set_num_threads(1)
    trace(make_workload(entry("warm", 4).build(), (2, 8), mode="train"))
    assert collect.folder_name().startswith("sim-")
    folder = tmp_path / collect.folder_name()
    arguments = ["--folder", str(tmp_path), "--suite", "quick", "--seconds", "40"]

    validate = collect.validation.validate

    def interrupted(*args: object, **kwargs: object) -> object:
        kwargs["progress"] = stop_at_the_second
        return validate(*args, **kwargs)  # type: ignore[arg-type]

    def stop_at_the_second(text: str) -> None:
        if "second" in text:
            raise Interrupted

    monkeypatch.setattr(collect.validation, "validate", interrupted)
    with pytest.raises(Interrupted):
        collect.main(arguments)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(kept) == {"environment.json", "profile.json", "choose_cost.json", "measurements.json"}
    environment = json.loads(kept["environment.json"])
    assert environment["context_seconds"]["sim"] > DEVICE.spec.context
    found = profile.load(folder / "profile.json")
    assert found.devices() == ("cpu", "sim")
    assert found.complete
    assert {c.network for c in record.load(folder / "measurements.json").cells} == {"first"}

    monkeypatch.setattr(collect.validation, "validate", validate)
    assert collect.main(arguments) == 0
    assert "calibrated cpu, sim; complete" in capsys.readouterr().out
    assert (folder / "profile.json").read_bytes() == kept["profile.json"]
    cells = record.load(folder / "measurements.json").cells
    assert len(cells) == 2 * 2  # networks, devices
    assert all(cell.predicted and cell.measured for cell in cells), [c.error or c.prediction_error for c in cells]
    before = {c.key: c.measured for c in _cells(kept["measurements.json"], tmp_path)}
    assert before.items() <= {c.key: c.measured for c in cells}.items()


def _cells(content: bytes, folder: Path) -> tuple[record.Cell, ...]:
    path = folder / "earlier.json"
    path.write_bytes(content)
    return record.load(path).cells
