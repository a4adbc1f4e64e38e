"""A measured accelerator that the catalog knows: its name, families without samples, and what contradicts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.fitting.accelerator import fit_accelerator
from placer.calibration.fitting.catalog import catalog_gpu, contradictions
from placer.calibration.measuring.observation import StepObservation
from placer.pricing import device_model

from .made_up import RATES, steps


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
