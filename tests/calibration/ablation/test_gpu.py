"""Mechanisms of pricing for GPUs, switched off one by one on small steps of every kind."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from placer.calibration.ablation import gpu, mechanism
from placer.calibration.ablation.gpu import FITTED, HELD_OUT, HOST_BOUND, GpuStep, gpu_tables, outcome
from placer.calibration.ablation.gpu_mechanisms import COMPILED_MECHANISMS, GPU_MECHANISMS, LEARNT, PHYSICS
from placer.calibration.ablation.mechanism import Mechanism, Outcome
from placer.calibration.published import PublishedStep, catalog_gpu, read_steps
from placer.profile import find_gpu
from placer.tracing import Trace, trace
from placer.workload import make_workload

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "gpu-data"
#: What only shows on thousands of kernels, or on shapes and ops beyond those that were published.
RARE = {
    "a full queue", "inputs cut at the range of published ones", "bounds of what is learnt", "bound of concatenations"
}  # fmt: skip
PUBLISHED = PublishedStep(
    source="timm", gpu="A100", host_cpu=None, torch_version=None, network="timm:made_up", family="vision-conv", batch=8,
    input=(8, 3, 64, 64), tokens=(), dtype="float32", conv_tf32=True, channels_last=False, mode="train", part="forward",
    attention="", optimizer="adam", foreach=True, copies="host", zero_grad=False, keeps_gradients=False, benchmark=True,
    synchronised=True, seconds=0.003,
)  # fmt: skip


class Images(nn.Module):
    """Convolutions of all kinds, a concatenation, and a value that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.depthwise = nn.Conv2d(3, 30, 3), nn.Conv2d(30, 30, 3, groups=30, padding=1)
        self.dilated, self.norm, self.head = nn.Conv2d(30, 30, 3, dilation=2), nn.BatchNorm2d(60), nn.Linear(60, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = self.dilated(torch.cat([self.depthwise(x), x + x.mean(0)], 1)[:, ::2])
        x = self.norm(torch.cat([x, x.transpose(2, 3).exp()], 1))
        found: Tensor = self.head(x.mean((2, 3))) * float(x.sum().item() > 0.0)
        return found


class Words(nn.Module):
    """An LSTM, and attention that is causal."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(100, 64), nn.LayerNorm(64)
        self.lstm = nn.LSTM(64, 64, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        q = self.norm(self.lstm(self.embedding(x))[0]).unflatten(-1, (4, 16)).transpose(1, 2)
        found: Tensor = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        return found


class Gated(nn.Module):
    """Two convolutions, each with ops after it, of which one result is made."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(3, 64, 3), nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.second(x)).mul(2.0)
        found: Tensor = self.norm(torch.relu(self.first(x)) * gate) + gate
        return found


def traced(model: nn.Module, example: Tensor, mode: Any) -> Trace:
    return trace(make_workload(model, example=example, mode=mode))


@cache
def eager() -> tuple[GpuStep, ...]:
    images, words = torch.zeros(256, 3, 32, 32), torch.zeros(16, 50, dtype=torch.long)
    training, inferring = traced(Images(), images, "train"), traced(Words(), words, "infer")
    half = traced(Words().half(), words, "train")
    steps = [
        (replace(PUBLISHED, gpu=name, conv_tf32=name == "A100"), of) for name in ("A100", "T4", "RTX 4060 Ti 16GB")
        for of in (training, inferring, half)
    ]  # fmt: skip
    return tuple(GpuStep(step, of, find_gpu(catalog_gpu(step.gpu)).name, 0.003, 0.03, FITTED) for step, of in steps)


@cache
def compiled() -> tuple[GpuStep, ...]:
    images, a100 = torch.zeros(64, 3, 64, 64), find_gpu(catalog_gpu("A100")).name
    model: Any = torch.compile(Gated())
    return tuple(GpuStep(PUBLISHED, traced(model, images, mode), a100, 0.01, 0.1) for mode in ("infer", "train"))


def same(one: Outcome, other: Outcome) -> bool:
    return np.array_equal(one.errors, other.errors)


def changes(each: Mechanism, steps: tuple[GpuStep, ...], before: Outcome) -> bool:
    """Whether anything changes while a mechanism is off. Afterwards nothing is changed."""
    with each.off():
        found = outcome(steps)
    assert np.isfinite(found.errors).all()
    return not same(found, before)


@pytest.fixture(scope="module")
def before() -> dict[bool, Outcome]:
    """What eager (False) and compiled (True) steps come to with all mechanisms."""
    return {False: outcome(eager()), True: outcome(compiled())}


@pytest.mark.parametrize("each", GPU_MECHANISMS, ids=lambda each: each.name)
def test_a_mechanism_that_is_off_changes_a_step(each: Mechanism, before: dict[bool, Outcome]) -> None:
    assert changes(each, eager(), before[False]) or each.name in RARE


@pytest.mark.parametrize("each", COMPILED_MECHANISMS, ids=lambda each: each.name)
def test_so_does_one_of_compiled_steps(each: Mechanism, before: dict[bool, Outcome]) -> None:
    assert changes(each, compiled(), before[True]) or each.name in ("most calls of a kernel",)


def test_parts_of_the_physics_change_a_step_where_nothing_is_learnt() -> None:
    with LEARNT.off():
        alone = outcome(eager())
        assert all(changes(each, eager(), alone) for each in PHYSICS)


def test_everything_is_put_back(before: dict[bool, Outcome]) -> None:
    for each in (*GPU_MECHANISMS, *COMPILED_MECHANISMS, *PHYSICS):
        with each.off():
            pass
    assert same(outcome(eager()), before[False])
    assert same(outcome(compiled()), before[True])


def test_every_name_of_code_is_there() -> None:
    every = (*GPU_MECHANISMS, *COMPILED_MECHANISMS, *PHYSICS)
    assert all(each.lines > 0 for each in every if each.code)
    assert len({each.name for each in every}) == len({id(each) for each in every})


def test_a_kind_is_what_bounds_a_step_and_whether_a_fit_saw_it() -> None:
    (step, found), *_ = gpu._predicted(eager()[:1])
    busy = replace(found, components={**found.components, "compute": found.step_seconds})
    idle = replace(found, components={**found.components, "compute": 0.0})
    unseen = replace(step, published=replace(PUBLISHED, gpu="TITAN RTX"))
    unlicensed = replace(step, published=replace(PUBLISHED, source="lambdal"))
    assert gpu._kind(step, idle) == HOST_BOUND
    assert [gpu._kind(each, busy) for each in (step, unseen, unlicensed)] == [FITTED, HELD_OUT, HELD_OUT]


def test_the_tables_have_a_section_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three, *_ = eager()
    steps = (one, replace(two, kind=HOST_BOUND), replace(three, kind=HELD_OUT), *compiled())
    monkeypatch.setattr(mechanism, "DRAWS", 50)
    monkeypatch.setattr(gpu, "gpu_steps", lambda folder, most: steps)
    monkeypatch.setattr(gpu, "account_points", lambda collection: ())
    monkeypatch.setattr(gpu, "GPU_MECHANISMS", (LEARNT,))
    said: list[str] = []
    lines = list(gpu_tables(Path(), 5, said.append))
    assert [line[4:] for line in lines if line.startswith("### ")] == [
        "Device-bound, in the fit", "Device-bound, held out", "Host-bound (host not known)", "Compiled",
        "Device-bound, in the fit: physics alone", "Device-bound, held out: physics alone",
    ]  # fmt: skip
    assert sum(line.startswith(f"| {LEARNT.name} |") for line in lines) == 3
    assert said[0] == LEARNT.name


@pytest.mark.skipif(not (FOLDER / "steps.csv.gz").is_file(), reason="no published measurements in ../shared")
@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_steps_of_the_collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    networks = ("torchvision:alexnet", "torchvision:resnet18")
    known = [step for step in read_steps(FOLDER)[0] if step.network in networks and step.mode == "infer"]
    monkeypatch.setattr(gpu, "read_steps", lambda folder: (known, []))
    monkeypatch.setattr(gpu, "read_compiled_pairs", lambda folder: [])
    found = gpu.gpu_steps(tmp_path, 3)
    assert len(found) == 3
    assert all(step.measured == step.published.seconds and step.on_cpu > 0.0 for step in found)
    assert found == gpu.gpu_steps(tmp_path, 3)
    assert all(np.abs(gpu.gpu_outcome(tmp_path, 3).errors) < 2.0)
