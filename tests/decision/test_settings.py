"""Switches of torch: part of the question, and a note where they make a prediction less sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer.decision import candidates
from placer.decision.comparison import workload_key
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

CUDNN = torch.backends.cudnn
SWITCHES: dict[str, Callable[[], object]] = {
    "benchmark": lambda: setattr(CUDNN, "benchmark", True),
    "deterministic": lambda: setattr(CUDNN, "deterministic", True),
    "no cudnn": lambda: setattr(CUDNN, "enabled", False),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "precision": lambda: torch.set_float32_matmul_precision("high"),
    "tf32": lambda: setattr(CUDNN, "allow_tf32", False),
}


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    kept = (CUDNN.benchmark, CUDNN.deterministic, CUDNN.enabled, CUDNN.allow_tf32)
    yield
    CUDNN.benchmark, CUDNN.deterministic, CUDNN.enabled, CUDNN.allow_tf32 = kept
    torch.use_deterministic_algorithms(False)


def test_step_times_seen_with_other_switches_are_not_taken() -> None:
    workload = make_workload(nn.Linear(4, 2), (3, 4), mode="train")
    traced = trace(workload)
    usual = workload_key(traced, workload)
    assert candidates.unusual_settings() == ()
    CUDNN.benchmark = True
    assert candidates.unusual_settings() == ("cudnn.benchmark",)
    assert workload_key(traced, workload) != usual
    CUDNN.benchmark = False
    assert workload_key(traced, workload) == usual


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("benchmark", "cudnn.benchmark is on"), ("deterministic", "cudnn.deterministic is on"),
        ("no cudnn", "cuDNN is off"),
    ],
)  # fmt: skip
def test_what_changes_cudnns_kernels_is_said_beside_a_gpu(name: str, said: str, handmade_profile: Profile) -> None:
    assert candidates.setting_notes(handmade_profile, ("cpu", "cuda")) == ()
    SWITCHES[name]()
    (note,) = candidates.setting_notes(handmade_profile, ("cpu", "cuda:1"))
    assert note.startswith(said)
    assert candidates.setting_notes(handmade_profile, ("cpu",)) == ()


def test_deterministic_algorithms_are_said_anywhere(handmade_profile: Profile) -> None:
    torch.use_deterministic_algorithms(True)
    (note,) = candidates.setting_notes(handmade_profile, ("cpu",))
    assert note.startswith("deterministic algorithms are on")


def test_a_precision_that_changes_a_cpus_dtype_is_said(handmade_profile: Profile) -> None:
    torch.set_float32_matmul_precision("high")
    assert candidates.setting_notes(handmade_profile, ("cpu", "cuda")) == ()
    torch.set_float32_matmul_precision("medium")
    (note,) = candidates.setting_notes(handmade_profile, ("cpu", "cuda"))
    assert "calibrated with float32 matmul precision 'highest' and is now asked with 'medium'" in note
    same = replace(handmade_profile, fingerprint={**handmade_profile.fingerprint, "matmul_precision": "medium"})
    assert candidates.setting_notes(same, ("cpu",)) == ()


def test_step_times_of_channels_last_weights_are_others() -> None:
    model = nn.Conv2d(4, 4, 3)

    def key() -> str:
        workload = make_workload(model, (2, 4, 8, 8), mode="train")
        return workload_key(trace(workload), workload)

    first = key()
    assert key() == first
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert key() != first
