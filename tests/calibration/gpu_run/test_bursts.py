"""Questions about rates, answered on the CPU, which can do all that a device can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from placer.calibration.gpu_run import bursts, device_rates
from placer.calibration.gpu_run.bursts import Burst, Rates, burst
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines, read


def job(folder: Path, seconds: float) -> Job:
    """Its clock stands still: there is time for everything, or for nothing."""
    return Job(folder, "cpu", seconds, clock=lambda: 0.0)


def rates(folder: Path, seconds: float = 30.0) -> Rates:
    return Rates(job(folder, seconds), Lines(folder / "rates.jsonl"))


def test_a_burst_is_timed_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def call() -> None:
        nonlocal now
        now += 2**-9

    monkeypatch.setattr(bursts, "time", SimpleNamespace(perf_counter=lambda: now))
    assert burst(call, "cpu", seconds=5.5 * 2**-9) == Burst(2**-9, 2**-9, 2**-9, calls=5)


def test_what_fails_or_has_no_room_is_written_down_and_ends_its_series(tmp_path: Path) -> None:
    asked = rates(tmp_path)

    def refuse() -> Any:
        raise RuntimeError("no kernel for this")

    assert not asked.ask({"what": "a"}, refuse)
    assert not asked.ask({"what": "b"}, lambda: lambda: None, needs=1e18)
    assert asked.ask({"what": "c"}, lambda: lambda: None)
    errors = {line["of"]["what"]: line.get("error") for line in read(tmp_path / "rates.jsonl")}
    assert errors["a"] == "RuntimeError: no kernel for this"
    assert str(errors["b"]).startswith("needs 1e+18 bytes")
    assert errors["c"] is None


def test_what_is_known_is_not_asked_again_and_after_its_time_nothing_is(tmp_path: Path) -> None:
    assert rates(tmp_path).ask({"what": "a"}, lambda: lambda: None)
    content = (tmp_path / "rates.jsonl").read_text()
    assert rates(tmp_path).ask({"what": "a"}, pytest.fail)
    assert not rates(tmp_path, seconds=-1.0).ask({"what": "b"}, pytest.fail)
    assert (tmp_path / "rates.jsonl").read_text() == content


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        (device_rates.products, {"PRODUCT_SIZES": (16, 32)}),
        (device_rates.convolutions, {"CONVOLUTIONS": ((2, 4, 4, 8, 3, 1), (2, 4, 4, 8, 3, 4))}),
        (device_rates.attention, {"ATTENTIONS": ((1, 2, 8, 16),), "BACKENDS": ("MATH", "NO_SUCH_BACKEND")}),
        (device_rates.updates, {"UPDATED_TENSORS": (1, 3), "UPDATED_ELEMENTS": (64,)}),
        (device_rates.traffic, {"TRAFFIC_SIZES": (1 << 10, 1 << 12)}),
        (device_rates.copies, {"COPY_SIZES": (1 << 10,)}),
    ],
)
def test_every_family_asks_what_a_device_can_answer(
    family: Callable[[Rates], None], sizes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bursts, "BURST", 1e-4)
    for name, value in sizes.items():
        monkeypatch.setattr(device_rates, name, value)
    before = torch.get_float32_matmul_precision()
    family(rates(tmp_path))
    assert torch.get_float32_matmul_precision() == before
    found = list(read(tmp_path / "rates.jsonl"))
    assert len({str(line["of"]) for line in found}) == len(found) >= 4
    # Pinned memory is an accelerator's.
    assert not [line["error"] for line in found if "error" in line and line["of"].get("memory") != "pinned"]


def test_a_family_that_fails_as_a_whole_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Rates) -> None:
        raise RuntimeError("no such thing")

    def fine(asked: Rates) -> None:
        asked.ask({"what": "fine"}, lambda: lambda: None)

    monkeypatch.setattr(device_rates, "FAMILIES", (broken, fine))
    device_rates.run(job(tmp_path, 5.0))
    assert ["error" in line for line in read(tmp_path / "rates.jsonl")] == [True, False]
