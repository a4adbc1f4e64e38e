"""Advice is what pricing the changed workload says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn

import placer
from placer.decision import Question, advise, gather, trace_parts, with_batch
from placer.decision.advice import LEAST_GAIN, with_fused
from placer.explanation import Advice
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload


def advice(model: nn.Module, shape: Any, known: Profile, **values: Any) -> dict[str, Advice]:
    traced = trace_parts(make_workload(model, shape, **values))
    question = Question(traced, gather(known, None, here=False))
    rows = advise(traced, question)
    assert [row.gain for row in rows] == sorted((row.gain for row in rows), reverse=True)
    assert all(row.gain >= LEAST_GAIN for row in rows)
    return {row.change if row.kind == "data" else row.kind: row for row in rows}


def net(width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, 1))


def with_rates(known: Profile, rates: dict[str, float]) -> Profile:
    cpu, cuda = known.fits
    return replace(known, fits=(cpu, replace(cuda, rates={**cuda.rates, **rates})))


def test_a_larger_batch_is_what_explain_says_of_it(handmade_profile: Profile) -> None:
    row = advice(net(), (8, 84), handmade_profile)["batch"]
    assert row.change == "a batch of 32 instead of 8"
    before = placer.explain(net(), (8, 84), profile=handmade_profile)
    after = placer.explain(net(), (32, 84), profile=handmade_profile)
    assert row.before == pytest.approx(before.devices[before.decision.device].step_seconds / 8)
    assert row.after == pytest.approx(after.devices[after.decision.device].step_seconds / 32)
    assert row.gain == pytest.approx(1.0 - row.after / row.before)


def test_resident_data_is_what_explain_says_of_it(handmade_profile: Profile) -> None:
    """Outputs go where they went: those of an inference to the host."""
    for mode, how, outputs in (("train", 'data="device"', None), ("infer", 'data="device", outputs="host"', "host")):
        wide = nn.Linear(4096, 4 if mode == "train" else 1024)
        row = advice(wide, (65536, 4096), handmade_profile, mode=mode)["the data set kept on the device"]
        resident: Any = {"mode": mode, "data": "device", "outputs": outputs}
        after = placer.explain(wide, (65536, 4096), profile=handmade_profile, **resident)
        assert row.after == pytest.approx(after.devices["cuda"].step_seconds)
        assert (row.device, row.how) == ("cuda", how)


def test_what_tips_a_tie_is_marked(handmade_profile: Profile) -> None:
    """The copies of a wide input make the accelerator about as slow as the CPU; of resident ones it has none."""
    even = with_rates(handmade_profile, {"copy/h2d/pageable/bytes_per_second": 5.1e9})
    tie = placer.explain(nn.Linear(4096, 4), (65536, 4096), profile=even)
    assert tie.decision.tie
    assert [(row.kind, row.device) for row in tie.advice if row.tips] == [("data", "cuda")]
    slow = with_rates(handmade_profile, {"copy/h2d/pageable/bytes_per_second": 1e9})
    clear = placer.explain(nn.Linear(4096, 4), (65536, 4096), profile=slow)
    assert [row.tips for row in clear.advice if row.tips] == []


def test_only_what_was_measured_is_proposed(handmade_profile: Profile) -> None:
    """Pinned memory, bfloat16, a fused optimizer, another number of threads: each only where a profile knows of it."""
    big = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    plain = advice(big, (4096, 2048), handmade_profile)
    assert not {"batches in pinned memory", "autocast", "optimizer", "threads"} & plain.keys()
    pinned = {"copy/h2d/pinned/bytes_per_second": 5e12, "copy/h2d/pinned/seconds_per_tensor": 1e-6}
    wide = advice(nn.Linear(4096, 4), (65536, 4096), with_rates(handmade_profile, pinned))
    assert wide["batches in pinned memory"].device == "cuda"
    faster = with_rates(handmade_profile, {"flops/bfloat16": 2e14})
    lower = advice(big, (4096, 2048), faster)["autocast"]
    again = placer.explain(big, (4096, 2048), profile=faster, autocast=True)
    assert (lower.changes_results, lower.after) == (True, pytest.approx(again.devices["cuda"].step_seconds))
    cpu = handmade_profile.fits[0]
    now = torch.get_num_threads()
    more = replace(cpu, threads=now + 1, rates={**cpu.rates, "dispatch_seconds": 1e-7})
    tuned = advice(net(), (8, 84), replace(handmade_profile, fits=(cpu, more)))["threads"]
    assert (tuned.how, tuned.device) == (f"torch.set_num_threads({now + 1})", "cpu")


def test_a_change_that_cannot_be_traced_is_left_out(handmade_profile: Profile) -> None:
    """Or that has no one batch."""
    fixed = module(lambda self, x: self.layer(x.view(8, 4)), layer=nn.Linear(4, 4))
    assert "batch" not in advice(fixed, (8, 4), handmade_profile)
    pair = module(lambda self, x, y: self.layer(x).sum() + y.sum(), layer=nn.Linear(4, 4))
    for other, proposed in (((8,), True), ((3,), False), ((), False)):
        assert ("batch" in advice(pair, [(8, 4), other], handmade_profile)) == proposed


# --- the changed steps ------------------------------------------------------------------------------------------------


def test_a_larger_batch_repeats_indices_and_keeps_shapes_and_the_user_s_tensors() -> None:
    ids, scale = torch.randint(0, 9, (3, 5)), torch.rand(3)
    workload = make_workload(nn.Bilinear(1, 1, 1), batch={"ids": ids, "scale": scale, "flag": True})
    larger = with_batch(workload, 12)
    assert torch.equal(larger.kwargs["ids"], ids.repeat(4, 1))
    assert (larger.kwargs["scale"].shape, larger.kwargs["scale"].is_meta, larger.kwargs["flag"]) == ((12,), True, True)
    assert workload.kwargs["ids"] is ids


def test_a_fused_update_is_one_on_every_device() -> None:
    model = nn.Linear(4, 2)
    sgd = torch.optim.SGD(model.parameters(), momentum=0.9)
    step = with_fused(trace(make_workload(model, (3, 4), mode="train", optimizer=sgd)))
    updates = [dict(call.args) for call in step.on("cuda").calls if call.op == "optimizer::SGD"]
    assert [(update["fused"], "foreach" in update) for update in updates] == [(True, False)] * 2
