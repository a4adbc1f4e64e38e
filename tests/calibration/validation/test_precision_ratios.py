"""What half precision gains, published and predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.validation.priced_step import PricedStep
from placer.calibration.validation.published_steps import pairs, precision_ratios

FULL = PricedStep(
    source="lambdal", gpu="Tesla V100-SXM2-16GB", network="bert", family="language", mode="train", dtype="float32",
    batch=24, measured=0.48, predicted=0.40, low=0.3, high=0.5, busy=0.40, roofline=0.1, peak=0.1,
    provenance="published", held_out="",
)  # fmt: skip
HALF = replace(FULL, dtype="amp-float16", batch=48, measured=0.24, predicted=0.30, busy=0.30)


def test_a_sample_in_half_precision_is_compared_with_one_in_float32() -> None:
    (pair,) = pairs([FULL, HALF])
    assert pair.published == pytest.approx(0.25)
    assert pair.predicted == pytest.approx(0.375)


def test_tf32_and_float32_are_compared_apart() -> None:
    found = list(pairs([FULL, replace(FULL, dtype="tf32"), HALF]))
    assert [pair.full.dtype for pair in found] == ["float32", "tf32"]


def test_the_nearest_batch_is_taken() -> None:
    (pair,) = pairs([FULL, replace(FULL, batch=40), HALF])
    assert pair.full.batch == 40


@pytest.mark.parametrize(
    "other",
    [
        replace(FULL, batch=8), replace(FULL, gpu="Tesla T4"), replace(FULL, network="gpt2"),
        replace(FULL, mode="infer"), replace(FULL, busy=0.1), replace(FULL, dtype="float64"),
    ],
)  # fmt: skip
def test_steps_that_differ_in_more_than_precision_are_not_compared(other: PricedStep) -> None:
    assert list(pairs([other, HALF])) == []
    assert list(precision_ratios([other, HALF])) == []


def test_the_table_counts_the_ratios_that_are_met() -> None:
    others = [replace(FULL, network="gpt2"), replace(HALF, network="gpt2", predicted=0.2)]
    lines = list(precision_ratios([FULL, HALF, *others]))
    assert lines[-1] == "| amp-float16 / float32 | Tesla V100-SXM2-16GB | 2 | 0.25 | 0.31 | 25% | 50% |"
