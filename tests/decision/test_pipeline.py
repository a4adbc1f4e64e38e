"""Steps priced side by side, and the parts of a job added up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn

from placer.decision import Question, answer, best_count, gather
from placer.decision.pipeline import THREADS_TIE
from placer.decision.steps import identity_of
from placer.decision.table import Table, total
from placer.errors import PlacerError
from placer.pricing import Prediction
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import Workload, make_workload

Make = Callable[..., Prediction]


def asked(workload: Workload, profile: Profile, devices: tuple[str, ...] | None = None) -> Table:
    return answer(Question(workload, gather(profile, devices, here=False)))


def test_here_the_cpu_runs_with_the_threads_of_the_process(handmade_profile: Profile) -> None:
    """It is priced with the nearest number that was calibrated; elsewhere it runs with the one that was."""
    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(replace(cpu, threads=5), cuda))
    other = replace(profile, fingerprint={**profile.fingerprint, "cpu": "Z80"})
    torch.set_num_threads(4)
    workload = make_workload(nn.Linear(8, 8), (4, 8), mode="train")
    assert [asked(workload, each, ("cpu",)).costs["cpu"].threads for each in (profile, other)] == [4, 5]


def test_the_present_number_of_threads_is_kept_in_a_tie() -> None:
    assert best_count({1: 2.0, 2: 1.0, 4: 1.5}, now=4) == 2
    assert best_count({1: 1.0, 2: 1.0}, now=8) == 1
    assert [best_count({1: 1.0 - share * THREADS_TIE, 2: 1.0}, now=2) for share in (0.9, 1.1)] == [2, 1]


def test_a_device_that_lacks_a_dtype_or_an_op_is_left_out(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An op may be run by the CPU in its place."""

    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(cpu, replace(cuda, device="mps")))
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    double = make_workload(nn.Linear(4, 2, dtype=torch.float64), batch=torch.ones(3, 4, dtype=torch.float64))
    eigenvalues = make_workload(module(lambda self, x: torch.linalg.eigh(x)[0]), (4, 4), mode="infer")
    for workload, why in (
        (double, "mps has no float64: use float32"),
        (eigenvalues, "mps has no aten::_linalg_eigh, and PYTORCH_ENABLE_MPS_FALLBACK is not set to 1"),
    ):
        table = asked(workload, profile)
        line = f"mps is left out: {why}"
        assert (list(table.costs), table.left_out, line in table.decide().reason) == (["cpu"], (line,), True)
        with pytest.raises(PlacerError, match=f"no device can run it; {line}"):
            asked(workload, profile, ("mps",))
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    assert list(asked(eigenvalues, profile).costs) == ["cpu", "mps"]


def test_steps_of_other_layouts_or_other_ops_on_the_accelerator_have_another_key() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.enabled):
            return self.layer(x)

    def key(*, enabled: bool) -> str:
        model.enabled = enabled  # type: ignore[assignment]
        workload = make_workload(model, (2, 4, 8, 8), mode="infer")
        return identity_of(workload, trace(workload)).step

    model = module(forward, layer=nn.Conv2d(4, 4, 3))
    first = key(enabled=False)
    assert key(enabled=True) != first
    assert key(enabled=False) == first
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert key(enabled=False) != first


# --- a job on one device ----------------------------------------------------------------------------------------------


def test_times_and_their_intervals_add_up(make_prediction: Make) -> None:
    short, long = make_prediction(step=1e-3), make_prediction(step=5e-3, coverage=0.4, provenance="published")
    found = total([(10, short), (2.5, long)])
    assert found.step_seconds == pytest.approx(0.0225)
    assert (found.low, found.high) == pytest.approx((0.0225 / 1.2, 0.0225 * 1.2))
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert found.coverage == pytest.approx((0.01 + 0.4 * 0.0125) / 0.0225)
    assert (found.provenance, found.total_seconds) == ("published", None)


def test_what_is_paid_once_is_paid_once(make_prediction: Make) -> None:
    first = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.1}, peak_memory_bytes=10)
    second = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.3}, peak_memory_bytes=30)
    shared, own = (total([(1, first), (1, second)], models=models) for models in ((0, 0), (0, 1)))
    assert (shared.one_time_seconds, own.one_time_seconds) == pytest.approx((2.3, 2.4))
    assert (shared.peak_memory_bytes, own.peak_memory_bytes) == (30, 40)
    compiled = make_prediction(one_time={"compiler": 6.0, "compilation": 2.0})
    assert total([(1, compiled), (1, compiled)]).one_time_seconds == pytest.approx(10.0)
    large = make_prediction("cuda", peak_memory_bytes=30, available_memory_bytes=50)
    assert total([(1, large), (1, large)]).fits
    assert not total([(1, large), (1, large)], models=("a", "b")).fits
