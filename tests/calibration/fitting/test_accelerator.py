"""A made-up accelerator: what its host does, what its samples are, and what is known of it already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.accelerator import (
    LEAST_UPDATES,
    contradictions,
    fit_accelerator,
    issue_seconds,
    kernel_counts,
)
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.errors import ProfileError
from placer.pricing import (
    PUBLISHED,
    CostModel,
    device_model,
    feature_names,
    framework_seconds,
    host_seconds,
    kernels_of,
)

from .made_up import RATES, steps

ISSUE, PACE = 3e-6, 1.5
DEVICE_RATES = {**RATES, "launch_seconds": 4e-6, "sync_seconds": 6e-6, "issue_seconds": 2e-6}
#: What a CPU's fit has found, which holds for the host of an accelerator but for its pace.
ON_CPU = {"step": 2e-5, "forward_op": 4e-6, "python_call": 3e-6, "training_step": 5e-5}


def host_bound(count: int, seed: int) -> list[StepObservation]:
    """Steps whose kernels take next to nothing, by a host that is ``PACE`` times as slow as on the CPU."""
    random = np.random.default_rng(seed)
    found = []
    for step in steps(count, seed):
        ops = tuple(replace(op, seconds=1e-7, host_seconds=ISSUE) for op in step.ops)
        seconds = sum(ISSUE * op.count for op in ops) + PACE * framework_seconds(step.counts, ON_CPU)
        seconds += DEVICE_RATES["launch_seconds"] + DEVICE_RATES["sync_seconds"]
        found.append(replace(step, device="made-up", ops=ops, seconds=seconds * float(np.exp(random.normal(0, 0.02)))))
    return found


def between_ops(count: int, host: dict[str, float] | None) -> dict[str, float]:
    fit = fit_accelerator(host_bound(count, 5), DEVICE_RATES, device="made-up", threads=2, host=host)
    return {name: cost for name, cost in fit.framework.items() if not name.startswith("host")}


def test_many_steps_show_what_the_host_does_between_ops() -> None:
    seen = ("step", "forward_op", "python_call")
    assert between_ops(200, None) == {name: pytest.approx(PACE * ON_CPU[name], rel=0.15) for name in seen}
    assert between_ops(5, None) == {}  # too few show nothing by themselves
    # A clock that stands still between the ops is not taken for a CPU's costs.
    assert max(between_ops(200, {name: 1e3 * cost for name, cost in ON_CPU.items()}).values()) < 1e-4


def updated(optimizer: str, whole: float, each: float, *sizes: int, fused: bool = False) -> list[StepObservation]:
    """Probes of equal tensors, whose update is divided evenly among them."""
    features = [0.0] * (2 + len(feature_names("optimizer")))
    features[2 + feature_names("optimizer").index("fused")] = float(fused)
    found = []
    for tensors in sizes:
        host, name = whole / tensors + each, f"optimizer::{optimizer}"
        op = OpObservation("optimizer", name, "float32", tuple(features), 1e-6, host, 0.0, tensors)
        found.append(StepObservation("made-up", 2, "optimizer", f"{tensors}", 1e-3, 0.0, {}, (op,)))
    return found


def test_an_update_takes_the_host_a_time_of_its_own_and_one_per_tensor() -> None:
    adam, sgd = updated("Adam", 9e-5, 2e-6, 1, 4, 9, 60), updated("SGD", 3e-5, 1e-6, 2, 30)
    assert len(adam) >= LEAST_UPDATES > len(sgd)
    found = issue_seconds([*adam, *sgd, *updated("Adam", 1e-5, 1e-7, 1, 4, 9, 60, fused=True)])
    assert found["host_update/optimizer::Adam"] == pytest.approx(9e-5)
    assert found["host/optimizer::Adam"] == pytest.approx(2e-6)
    assert found["host_update/optimizer::Adam.fused"] == pytest.approx(1e-5)
    assert 3e-5 < found["host_update/optimizer"] < 9e-5
    assert "host" not in found
    # An optimizer of few probes is known by its ops: in torch 2.6 to 2.13 SGD is one over all tensors, Adam seven.
    found = issue_seconds(updated("SGD", 1e-5, 1e-7, 1, 4, 9, 60))
    assert found["host_update/optimizer::Adam"] == pytest.approx(7e-5)
    assert found["host/optimizer::Adam"] == pytest.approx(7e-7)
    # A network's tensors differ.
    assert issue_seconds([replace(step, family="network") for step in adam]) == {}


def ran(op: str, host: float, device: float, step: float, kernels: float = 1.0) -> StepObservation:
    """A step of one op."""
    features = (0.0,) * (2 + len(feature_names("indexing")))
    one = OpObservation("indexing", op, "float32", features, device, host, 0.0, 1, kernels)
    return StepObservation("made-up", 2, "indexing", op, step, 0.0, {}, (one,))


def test_steps_that_wait_for_the_host_tell_what_issuing_takes_and_waits_do_not() -> None:
    """Under the device's shadow, what recording adds does not show and is taken off all the same."""
    hidden = [ran("aten::gather", 1e-6, 9e-5, 1e-4), ran("aten::take", 2e-6, 9e-5, 1e-4)] * 3
    shown = [ran("aten::gather", 5e-6, 1e-6, 1e-4)]
    found = issue_seconds([*hidden, *shown])
    assert found["host/aten::gather"] == found["host"] == 5e-6
    assert found["host/aten::take"] == 2e-6  # seen in no other steps
    reads = [ran(op, 9e-4, 1e-6, 1e-3) for op in ("aten::nonzero", "aten::masked_select", "aten::index.mask")]
    assert issue_seconds([*shown, *reads]) == issue_seconds(shown)  # pricing adds the wait inside such an op
    counted = [ran("aten::gather", 5e-6, 1e-6, 1e-4, kernels) for kernels in (2.0, 0.0, 2.0, 3.0)]
    assert kernel_counts([*counted, ran("aten::take", 5e-6, 1e-6, 1e-4, 0.0)]) == {"kernels/aten::gather": 2.0}


def recurrent(op: str, kernels: float, host: float) -> StepObservation:
    """A step of one recurrent op."""
    features = (0.0,) * (2 + len(feature_names("recurrent")))
    one = OpObservation("recurrent", op, "float32", features, 1e-4, host, 0.0, 1, kernels)
    return StepObservation("made-up", 2, "recurrent", op, 1e-2, 0.0, {}, (one,))


def test_a_recurrent_op_takes_the_host_a_call_and_a_time_for_each_kernel() -> None:
    """Neither the middle of a few layers nor a least squares of their ratios: one that is far off moves nothing."""
    some = [recurrent("aten::gru", k, 2e-4 + 1e-5 * k) for k in (3.0, 6.0, 18.0, 70.0, 400.0)]
    odd = recurrent("aten::lstm", 70.0, 9e-3)
    backward = [recurrent("aten::gru_backward", k, 6e-4 + 2e-5 * k) for k in (10.0, 20.0, 80.0, 500.0)]
    found = issue_seconds([*some, odd, *backward, recurrent("aten::gru_cell", 4.0, 5e-5)])
    for op in ("aten::gru", "aten::lstm"):
        assert found[f"host/{op}"] == pytest.approx(2e-4, rel=0.15)
        assert found[f"host_kernel/{op}"] == pytest.approx(1e-5, rel=0.15)
    assert found["host/aten::gru_backward"] == pytest.approx(6e-4, rel=0.01)
    assert found["host/aten::gru_cell"] == 5e-5
    assert "host_kernel/aten::gru_cell" not in found
    work = replace(some[0].ops[0].work(), sizes=(20.0, 4.0, 8.0, 512.0, 1.0, *some[0].ops[0].work().sizes[5:]))
    assert host_seconds(work, found) == pytest.approx(2e-4 + 43e-5, rel=0.15)  # two kernels for each of 20 time steps
    assert kernels_of(work, found) == 43.0
    assert "host_kernel/aten::gru" not in issue_seconds(some[:3])  # too few


def on_t4(factor: float) -> list[StepObservation]:
    """Steps whose ops take ``factor`` times what is known of a T4, a thousand times as large as the made-up ones."""
    found = []
    for step in steps(60, 3):
        large = [replace(op, features=tuple(1000.0 * f for f in op.features)) for op in step.ops]
        seconds, _, _ = device_model("T4").price([op.work() for op in large])
        ops = tuple(replace(op, seconds=factor * t) for op, t in zip(large, seconds, strict=True))
        found.append(replace(step, device="cuda", ops=ops))
    return found


@pytest.mark.parametrize(("factor", "said"), [(1.0, 0), (1.8, 0), (0.6, 0), (3.0, 2), (0.3, 2)])
def test_large_ops_that_contradict_it_are_told(factor: float, said: int) -> None:
    found = contradictions(on_t4(factor), "cuda", "Tesla T4")
    assert len(found) == said
    for text, words in zip(found, ("products", "elementwise operations"), strict=False):
        assert text.startswith(f"cuda: large {words} take {factor:.2g} times what is known of Tesla T4: ")


def test_a_gpu_that_differs_from_what_is_published_is_priced_as_it_was_measured() -> None:
    slow = on_t4(1.4)
    fit = fit_accelerator(slow[:30], RATES, device="cuda", threads=2, gpu="Tesla T4")
    assert fit.gpu == "Tesla T4"
    unseen = [op for step in slow[30:] for op in step.ops]
    found, _, _ = CostModel(fit).price_works([op.work() for op in unseen])
    assert np.median(np.abs(np.log(np.array(found) / [op.seconds for op in unseen]))) < 0.03
    family = fit.families["matmul"]
    other = replace(family, parameters={**family.parameters, PUBLISHED: 1.0})
    for wrong in (replace(fit, families={"matmul": other}), replace(fit, gpu="")):
        with pytest.raises(ProfileError, match=r"other published times .* run placer calibrate"):
            CostModel(wrong)
