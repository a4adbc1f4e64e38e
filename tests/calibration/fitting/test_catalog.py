"""A measured accelerator that the catalog knows: its name, families without samples, and what contradicts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.accelerator import catalog_gpu, contradictions, fit_accelerator
from placer.calibration.fitting.family import OpTimes, fit_op_times
from placer.calibration.measuring.journal import StepObservation
from placer.calibration.published import read_ops, table
from placer.errors import ProfileError
from placer.pricing import PUBLISHED, Context, CostModel, Work, describe, device_model, on_accelerator, with_weights
from placer.profile import DeviceFit, find_gpu

from .made_up import RATES, steps

A6000 = "NVIDIA RTX A6000"


def on_gpu(factor: float) -> list[StepObservation]:
    """Steps whose ops take ``factor`` times what is known of a T4, a thousand times as large as the made-up ones."""
    model = device_model("T4")
    found = []
    for step in steps(60, 3):
        ops = []
        for op in step.ops:
            large = replace(op, features=tuple(1000.0 * f for f in op.features))
            (seconds,), _, _ = model.price([large.work()])
            ops.append(replace(large, seconds=factor * seconds))
        found.append(replace(step, device="cuda", ops=tuple(ops)))
    return found


@pytest.mark.parametrize(
    ("name", "found"), [("Tesla T4", "Tesla T4"), ("NVIDIA T4", "Tesla T4"), ("cuda", ""), ("", "")]
)
def test_the_catalog_is_asked_by_the_drivers_name(name: str, found: str) -> None:
    accelerators = [{"device": "cuda:1", "name": "Tesla V100-SXM2-32GB"}, {"device": "cuda", "name": name}]
    assert catalog_gpu({"accelerators": accelerators}, "cuda") == found
    assert catalog_gpu({}, "cuda") == ""


@pytest.mark.parametrize(("factor", "said"), [(1.0, 0), (1.8, 0), (0.6, 0), (3.0, 2), (0.3, 2)])
def test_large_ops_that_contradict_it_are_told(factor: float, said: int) -> None:
    found = contradictions(on_gpu(factor), "cuda", "Tesla T4")
    assert len(found) == said
    for text, words in zip(found, ("products", "elementwise operations"), strict=False):
        assert text.startswith(f"cuda: large {words} take {factor:.2g} times what is known of Tesla T4: ")


def test_small_ops_and_few_contradict_nothing() -> None:
    assert contradictions(steps(60, 3), "cuda", "Tesla T4") == ()
    few = [replace(step, ops=step.ops[:1]) for step in on_gpu(5.0)[:2]]
    assert contradictions(few, "cuda", "Tesla T4") == ()


def test_the_fit_names_the_gpu() -> None:
    rates = {**RATES, "launch_seconds": 4e-6, "sync_seconds": 6e-6, "issue_seconds": 2e-6}
    assert fit_accelerator(steps(20, 5), rates, device="cuda", threads=2, gpu="Tesla T4").gpu == "Tesla T4"


def errors(gpu: str, taught: list[tuple[Work, float]], unseen: list[tuple[Work, float]]) -> np.ndarray:
    """|log(predicted / measured)| of products on an RTX A6000; ``gpu`` "" fits without the catalog."""
    sheet = find_gpu(A6000)
    rates = {
        "dispatch_seconds": 2e-6, "flops/float32": 0.9e12 * sheet.float32_tflops,
        "flops/bfloat16": 0.9e12 * sheet.tensor_bfloat16_tflops, "flops/float16": 0.9e12 * sheet.tensor_float16_tflops,
        "bytes_per_second": 0.9e9 * sheet.bandwidth_gbps,
    }  # fmt: skip
    empty = DeviceFit("cuda", 1, rates, {}, {}, {}, gpu=gpu)
    seconds = np.array([seconds for _, seconds in taught])
    times = OpTimes(tuple(on_accelerator(work) for work, _ in taught), seconds, np.full(len(taught), 1e-4))
    fit, _ = fit_op_times("matmul", times, empty, None)
    model = CostModel(replace(empty, families={"matmul": with_weights(fit)}))
    found, _, sources = model.price_works([work for work, _ in unseen])
    assert set(sources) <= {"calibrated", "extrapolated"}
    return np.abs(np.log(np.array(found) / [seconds for _, seconds in unseen]))


def test_few_samples_of_a_known_gpu_price_other_shapes_by_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes that no published fit saw: 40 of them are samples, all others are priced."""
    rows = list(table._rows("ops.csv.xz"))
    held_out = [row for row in rows if row["gpu"] == A6000 and row["use"] == "held out"]
    monkeypatch.setattr(table, "_rows", lambda name: iter(held_out))
    works = [(describe(op.calls[0], Context(0, False)), op.seconds) for op in read_ops()]
    unpublished = [(work, seconds) for work, seconds in works if work.family == "matmul"]
    order = np.random.default_rng(0).permutation(len(unpublished))
    taught, unseen = ([unpublished[i] for i in some] for some in (order[:40], order[40:]))
    alone, built_on = errors("", taught, unseen), errors(A6000, taught, unseen)
    assert len(unseen) > 200
    assert np.median(built_on) < 0.06
    assert np.median(built_on) < 0.8 * np.median(alone)
    assert np.quantile(built_on, 0.9) < 0.8 * np.quantile(alone, 0.9)


def test_a_gpu_that_differs_from_what_is_published_is_priced_as_it_was_measured() -> None:
    slow = on_gpu(1.4)
    fit = fit_accelerator(slow[:30], RATES, device="cuda", threads=2, gpu="Tesla T4")
    unseen = [op for step in slow[30:] for op in step.ops]
    found, _, _ = CostModel(fit).price_works([op.work() for op in unseen])
    assert np.median(np.abs(np.log(np.array(found) / [op.seconds for op in unseen]))) < 0.03


def test_a_fit_built_on_other_published_times_is_refused() -> None:
    fit = fit_accelerator(on_gpu(1.0), RATES, device="cuda", threads=2, gpu="Tesla T4")
    family = fit.families["matmul"]
    assert PUBLISHED in family.parameters
    other = replace(family, parameters={**family.parameters, PUBLISHED: 1.0})
    for wrong in (replace(fit, families={"matmul": other}), replace(fit, gpu="")):
        with pytest.raises(ProfileError, match=r"other published times .* run placer calibrate"):
            CostModel(wrong)
