from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from placer.decision import advice
from placer.profile.profile import DeviceFit, FamilyFit, Profile
from placer.tracing import trace as trace_workload
from placer.workload import make_workload


def test_the_batch_is_what_all_inputs_share() -> None:
    model = nn.Linear(4, 2)
    assert advice.batch_size(make_workload(model, (8, 4))) == 8
    assert advice.batch_size(make_workload(model, [(8, 4), (8,)])) == 8
    assert advice.batch_size(make_workload(model, [(8, 4), (3,)])) is None
    assert advice.batch_size(make_workload(model, [(8, 4), ()])) is None


def test_a_larger_batch_repeats_indices_and_keeps_shapes_and_the_user_s_tensors() -> None:
    ids, scale = torch.randint(0, 9, (3, 5)), torch.rand(3)

    class Scored(nn.Module):
        def forward(self, ids: torch.Tensor, scale: torch.Tensor, flag: bool) -> None: ...

    workload = make_workload(Scored(), example={"ids": ids, "scale": scale, "flag": True})
    larger = advice.with_batch(workload, 12)
    assert torch.equal(larger.kwargs["ids"], ids.repeat(4, 1))
    assert (larger.kwargs["scale"].shape, larger.kwargs["scale"].is_meta) == ((12,), True)
    assert larger.kwargs["flag"] is True
    assert workload.kwargs["ids"] is ids
    assert advice.with_batch(workload, 2).kwargs["ids"].shape == (2, 5)


def test_an_activation_is_replaced_forward_and_backward() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.mish(self.layer(x))

    trace = trace_workload(make_workload(Net(), (8, 4), mode="train"))
    assert advice.substitutable(trace) == ("mish",)
    changed = advice.substituted(trace, "mish")
    ops = [call.op for call in changed.calls]
    assert {"aten::silu", "aten::silu_backward"} <= set(ops)
    assert not any("mish" in op for op in ops)
    assert len(ops) == len(trace.calls)
    # It is the trace of the network with the other activation, op by op.
    silu = type("Silu", (Net,), {"forward": lambda self, x: nn.functional.silu(self.layer(x))})()
    assert sorted(ops) == sorted(c.op for c in trace_workload(make_workload(silu, (8, 4), mode="train")).calls)


def test_a_fused_optimizer_is_known_where_it_was_measured() -> None:
    family = FamilyFit(
        ("numel", "fused"), ("optimizer::Adam", "optimizer::SGD"), ((3.0, 1.0), (3.0, 0.0)), (0, 1), (0.0, 0.0),
        (0.0, 0.0), (1.0, 1.0), 1.0, 0.0, 1.0, 0.1, {}, 2,
    )  # fmt: skip
    fit = DeviceFit("cpu", 2, {}, {"optimizer": family}, {}, {})
    assert advice.knows_fused(fit, "Adam")
    assert not advice.knows_fused(fit, "SGD")
    assert not advice.knows_fused(fit, "RMSprop")
    assert not advice.knows_fused(dataclasses.replace(fit, families={}), "Adam")


def test_fusing_says_so_to_every_update_and_to_nothing_else(handmade_profile: Profile) -> None:
    trace = trace_workload(make_workload(nn.Linear(4, 2), (8, 4), mode="train", optimizer="adam"))
    changed = advice.with_fused(trace)
    for before, after in zip(trace.calls, changed.calls, strict=True):
        if before.op.startswith("optimizer::"):
            assert after.args.count(("fused", True)) == 1
            assert not any(isinstance(a, tuple) and a[0] == "foreach" for a in after.args)
        else:
            assert after == before


def test_without_syncs() -> None:
    trace = dataclasses.replace(trace_workload(make_workload(nn.Linear(4, 2), (8, 4), mode="train")), syncs=3)
    assert advice.without_syncs(trace).syncs == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.syncs = 0  # type: ignore[misc]
