"""Advice is what pricing the changed workload says; some of it is measured by ``soak/test_advice.py``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import placer
from placer import profile
from placer.decision import Question, answer, gather, trace_parts
from placer.decision.advice import (
    LEAST_GAIN,
    advise,
    batch_size,
    knows_fused,
    substituted,
    with_batch,
    with_fused,
)
from placer.explanation import Advice
from placer.profile.profile import Device, FamilyFit, Profile
from placer.tracing import trace
from placer.workload import make_workload

RECORD = Path(__file__).resolve().parents[2] / "calibration" / "records" / "cpu-2-core" / "profile.json.xz"


@pytest.fixture(scope="module")
def recorded() -> Profile:
    return profile.load(RECORD, samples=False)


def advice(model: nn.Module, shape: Any, known: Profile, **values: Any) -> dict[str, Advice]:
    traced = trace_parts(make_workload(model, shape, **values))
    question = Question(traced, gather(known, None, here=False))
    found = advise(traced, question, answer(question))
    assert [row.gain for row in found] == sorted((row.gain for row in found), reverse=True)
    assert all(row.gain >= LEAST_GAIN for row in found)
    return {row.kind: row for row in found}


def net(width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, 1))


def with_rates(known: Profile, device: str, **rates: float) -> Profile:
    def changed(fit: Device) -> Device:
        if fit.device != device:
            return fit
        return dataclasses.replace(fit, rates={**fit.rates, **{k.replace("__", "/"): v for k, v in rates.items()}})

    return dataclasses.replace(known, fits=tuple(map(changed, known.fits)))


def test_a_larger_batch_is_what_explain_says_of_it(handmade_profile: Profile) -> None:
    found = advice(net(), (8, 84), handmade_profile)["batch"]
    assert found.change == "a batch of 32 instead of 8"
    before = placer.explain(net(), (8, 84), profile=handmade_profile)
    after = placer.explain(net(), (32, 84), profile=handmade_profile)
    assert found.before == pytest.approx(before.devices[before.decision.device].step_seconds / 8)
    assert found.after == pytest.approx(after.devices[after.decision.device].step_seconds / 32)
    assert found.gain == pytest.approx(1.0 - found.after / found.before)


def test_resident_data_is_what_explain_says_of_it(handmade_profile: Profile) -> None:
    wide = nn.Linear(4096, 4)
    found = advice(wide, (65536, 4096), handmade_profile)["data"]
    after = placer.explain(wide, (65536, 4096), profile=handmade_profile, data="device")
    assert found.after == pytest.approx(after.devices["cuda"].step_seconds)
    assert (found.device, found.how) == ("cuda", 'data="device"')


def test_resident_data_of_an_inference_is_told_with_outputs_that_go_where_they_went(handmade_profile: Profile) -> None:
    wide = nn.Linear(4096, 1024).eval()
    found = advice(wide, (65536, 4096), handmade_profile)["data"]
    after = placer.explain(wide, (65536, 4096), profile=handmade_profile, data="device", outputs="host")
    assert found.after == pytest.approx(after.devices["cuda"].step_seconds)
    assert (found.device, found.how) == ("cuda", 'data="device", outputs="host"')
    kept = placer.explain(wide, (65536, 4096), profile=handmade_profile, data="device")
    assert kept.devices["cuda"].step_seconds < after.devices["cuda"].step_seconds
    assert kept.devices["cpu"].step_seconds == after.devices["cpu"].step_seconds


def test_what_tips_a_tie_is_marked(handmade_profile: Profile) -> None:
    """The copies of a wide input make the accelerator about as slow as the CPU; of resident ones it has none."""
    even = with_rates(handmade_profile, "cuda", copy__h2d__pageable__bytes_per_second=5.1e9)
    wide = nn.Linear(4096, 4)
    tie = placer.explain(wide, (65536, 4096), profile=even)
    assert tie.decision.tie
    (tips,) = [row for row in tie.advice if row.tips]
    assert (tips.kind, tips.device) == ("data", "cuda")
    assert not placer.explain(wide, (65536, 4096), profile=even, data="device").decision.tie
    assert f"What would tip it: {tips.change} (cuda)." in tie.to_text(full=True)
    slow = with_rates(even, "cuda", copy__h2d__pageable__bytes_per_second=1e9)
    clear = placer.explain(wide, (65536, 4096), profile=slow)
    assert clear.advice
    assert not any(row.tips for row in clear.advice)


def test_pinned_memory_is_proposed_only_where_it_was_measured(handmade_profile: Profile) -> None:
    def pinned(known: Profile) -> bool:
        found = placer.explain(nn.Linear(4096, 4), (65536, 4096), profile=known).advice
        return any("pinned" in row.change for row in found)

    assert not pinned(handmade_profile)
    rates = {"copy__h2d__pinned__bytes_per_second": 5e10, "copy__h2d__pinned__seconds_per_tensor": 1e-6}
    assert pinned(with_rates(handmade_profile, "cuda", **rates))


def test_autocast_is_proposed_only_where_the_lower_precision_is_faster(handmade_profile: Profile) -> None:
    big = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    assert "autocast" not in advice(big, (4096, 2048), handmade_profile)
    faster = with_rates(handmade_profile, "cuda", flops__bfloat16=2e14)
    found = advice(big, (4096, 2048), faster)["autocast"]
    assert found.changes_results
    again = placer.explain(big, (4096, 2048), profile=faster, autocast=True)
    assert found.after == pytest.approx(again.devices["cuda"].step_seconds)


def test_fewer_threads_where_they_are_faster(handmade_profile: Profile) -> None:
    cpu = handmade_profile.fits[0]
    now = torch.get_num_threads()
    other = dataclasses.replace(cpu, threads=now + 1, rates={**cpu.rates, "dispatch_seconds": 1e-7})
    found = advice(net(), (8, 84), dataclasses.replace(handmade_profile, fits=(cpu, other)))["threads"]
    assert found.how == f"torch.set_num_threads({now + 1})"


def test_a_batch_that_cannot_grow_is_left_out(handmade_profile: Profile) -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x.view(8, 4))
            return out

    assert "batch" not in advice(Fixed(), (8, 4), handmade_profile)


def test_a_larger_batch_saves_time_per_row(recorded: Profile) -> None:
    found = advice(net(), (16, 84), recorded, mode="train")
    assert found["batch"].gain > 0.3
    assert "data" not in found  # resident batches and pinned ones change nothing on the CPU


def test_ops_that_cost_less_are_named(recorded: Profile, handmade_profile: Profile) -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(512, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layer(x)
            for _ in range(3):
                y = y + y.mean().item()
            return y

    slow = with_rates(handmade_profile, "cuda", sync_seconds=5e-4)
    assert "now 3 times" in advice(Reads(), (512, 512), slow)["sync"].change
    model = nn.Sequential(nn.Linear(16, 256), *(nn.Mish() for _ in range(6)))
    assert advice(model, (512, 16), recorded, mode="train")["op"].change == "silu in place of mish"


# --- the changed steps ------------------------------------------------------------------------------------------------


def test_the_batch_is_what_all_inputs_share() -> None:
    model = nn.Linear(4, 2)
    shapes: list[Any] = [(8, 4), [(8, 4), (8,)], [(8, 4), (3,)], [(8, 4), ()]]
    assert [batch_size(make_workload(model, shape)) for shape in shapes] == [8, 8, None, None]


def test_a_larger_batch_repeats_indices_and_keeps_shapes_and_the_user_s_tensors() -> None:
    ids, scale = torch.randint(0, 9, (3, 5)), torch.rand(3)

    class Scored(nn.Module):
        def forward(self, ids: torch.Tensor, scale: torch.Tensor, flag: bool) -> None: ...

    workload = make_workload(Scored(), batch={"ids": ids, "scale": scale, "flag": True})
    larger = with_batch(workload, 12)
    assert torch.equal(larger.kwargs["ids"], ids.repeat(4, 1))
    assert (larger.kwargs["scale"].shape, larger.kwargs["scale"].is_meta, larger.kwargs["flag"]) == ((12,), True, True)
    assert workload.kwargs["ids"] is ids
    assert with_batch(workload, 2).kwargs["ids"].shape == (2, 5)


def test_an_activation_is_replaced_forward_and_backward() -> None:
    """The trace is that of the network with the other activation, op by op."""
    nets = (nn.Sequential(nn.Linear(4, 4), activation) for activation in (nn.Mish(), nn.SiLU()))
    mish, silu = (trace(make_workload(net, (8, 4), mode="train")) for net in nets)
    assert sorted(c.op for c in substituted(mish, "mish").calls) == sorted(c.op for c in silu.calls)


def test_a_fused_optimizer_is_known_where_it_was_measured() -> None:
    family = FamilyFit((), {"optimizer::Adam.fused": 0.1, "optimizer::Adam": 0.0, "optimizer::SGD": 0.0}, 0.1, 3)
    fit = Device("cpu", 2, {}, {"optimizer": family}, {}, {})
    assert [knows_fused(fit, name) for name in ("Adam", "SGD", "RMSprop")] == [True, False, False]
    assert not knows_fused(dataclasses.replace(fit, families={}), "Adam")
    traced = trace(make_workload(nn.Linear(4, 2), (8, 4), mode="train", optimizer="adam"))
    for before, after in zip(traced.calls, with_fused(traced).calls, strict=True):
        if before.op.startswith("optimizer::"):
            assert after.args.count(("fused", True)) == 1
            assert not any(isinstance(a, tuple) and a[0] == "foreach" for a in after.args)
        else:
            assert after == before


def test_a_change_of_the_step_is_one_on_every_device() -> None:
    """Momentum is traced op by op on the CPU; on accelerators the update is one call per tensor."""
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    step = trace(make_workload(model, (3, 4), mode="train", optimizer=optimizer))
    fused = [dict(c.args).get("fused") for c in with_fused(step).on("cuda").calls if c.op == "optimizer::SGD"]
    assert fused == [True] * 4
    assert not any("gelu" in c.op for c in substituted(step, "gelu").on("cuda").calls)
