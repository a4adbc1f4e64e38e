"""What a machine measured at length teaches one that was measured in passing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer import profile
from placer.calibration.fitting import device as fitting
from placer.calibration.fitting.difference import OTHER_CLASS
from placer.calibration.fitting.transfer import PER_READING, Comparison, Expectation, compared, work_at
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.pricing.cost_model import CostModel
from placer.pricing.families import FAMILIES
from placer.pricing.floors import ARITHMETIC_BY_FLOOR
from placer.pricing.framework import framework_seconds
from placer.pricing.kernels import SUFFIX
from placer.pricing.op_labels import op_label
from placer.pricing.residual_inputs import inputs_of
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES
from placer.pricing.work import Work
from placer.profile.profile import DeviceFit

from .test_device import FRAMEWORK, RATES, steps

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-2-core" / "profile.json"


def slower(observed: list[StepObservation], **factors: float) -> list[StepObservation]:
    """The same steps on a machine whose ops of a family take so many times longer."""
    found = []
    for step in observed:
        ops = tuple(replace(op, seconds=(op.seconds or 0.0) * factors[op.family]) for op in step.ops)
        more = sum((o.seconds or 0.0) * o.count for o in ops) - sum((o.seconds or 0.0) * o.count for o in step.ops)
        found.append(replace(step, ops=ops, seconds=step.seconds + more))
    return found


def error(fit: DeviceFit, held: list[StepObservation]) -> float:
    model = CostModel(fit)
    return float(np.median([abs(math.log(fitting.predict_step(s, model)[0] / s.seconds)) for s in held]))


@pytest.fixture(scope="module")
def reference() -> DeviceFit:
    return fitting.fit_device(steps(160, 0), RATES, device="cpu", threads=2)


def test_few_steps_and_a_reference_are_worth_more_than_few_steps(reference: DeviceFit) -> None:
    here, unseen = (slower(steps(n, seed), matmul=1.8, elementwise=1.1) for n, seed in ((4, 7), (100, 8)))
    alone = fitting.fit_device(here, RATES, device="cpu", threads=2)
    taught = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference))
    assert error(taught, unseen) < 0.5 * error(alone, unseen)


def test_a_family_never_measured_here_is_priced_at_this_machines_pace(reference: DeviceFit) -> None:
    both = slower(steps(60, 7), matmul=1.5, elementwise=1.5)
    here = [s for s in both if all(op.family == "elementwise" for op in s.ops)]
    fit = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference))
    unseen = [op for s in steps(20, 9) for op in s.ops if op.family == "matmul"]
    seconds, sigma, _ = CostModel(fit).price_works([op.work() for op in unseen])
    ratio = np.array(seconds) / np.array([op.seconds for op in unseen])
    assert np.median(ratio) == pytest.approx(1.5, rel=0.1)
    assert min(sigma) > 0.1  # and that it is a guess is known


def test_many_steps_outweigh_a_reference_that_is_wrong(reference: DeviceFit) -> None:
    wrong = replace(reference, rates=dict(RATES))
    here, unseen = (slower(steps(n, seed), matmul=6.0, elementwise=0.3) for n, seed in ((160, 10), (100, 8)))
    taught = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(wrong))
    assert error(taught, unseen) < 0.08


def test_a_machine_of_the_same_kind_keeps_what_the_other_knows(reference: DeviceFit) -> None:
    here = slower(steps(30, 7), matmul=1.1, elementwise=1.1)
    taught = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference, same_class=True))
    for name, known in reference.families.items():
        found = taught.families[name]
        assert np.array_equal(found.x, known.x)
        assert np.array_equal(found.op_index, known.op_index)
        assert (found.length_scales, found.parameters) == (known.length_scales, known.parameters)
        moved = found.y - known.y
        assert 0.0 < np.median(moved) < math.log(1.1)  # a minute's difference is believed in part


@pytest.mark.parametrize("pace", [1.4, 1 / 1.4])
def test_a_machine_of_the_same_kind_that_is_far_off_its_pace_is_believed(reference: DeviceFit, pace: float) -> None:
    here, unseen = (slower(steps(n, seed), matmul=pace, elementwise=pace) for n, seed in ((400, 7), (100, 8)))
    expected = Expectation(reference, same_class=True)
    taught = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=expected)
    ops = [op for step in unseen for op in step.ops]
    ratio = np.array(CostModel(taught).price_works([op.work() for op in ops])[0]) / [op.seconds or 0.0 for op in ops]
    assert abs(math.log(np.median(ratio))) < 0.2 * abs(math.log(pace))
    assert np.array_equal(taught.families["matmul"].x, reference.families["matmul"].x)  # and what it knows is kept


def seen(
    reference: DeviceFit, factor: float, reading: float = 0.0, *, moments: int = 400, there: float = 0.0, **own: float
) -> Comparison:
    """A machine of the reference's kind that takes ``factor`` times as long, at this reading and that of the reference."""
    fit = replace(reference, rates={**RATES, USUAL_READING: there})
    factors = {"matmul": factor, "elementwise": factor, **own}
    ops = [op for step in slower(steps(60, 7), **factors) for op in step.ops]
    return compared(ops, Expectation(fit, same_class=True), moments, {**RATES, USUAL_READING: reading})


def test_the_further_off_a_minute_is_the_more_of_it_stays(reference: DeviceFit) -> None:
    def trust(factor: float, moments: int) -> float:
        found = seen(reference, factor, moments=moments)
        assert found.same_class
        assert found.believed == pytest.approx(found.trust * found.pace)
        return found.trust

    assert trust(1.05, 400) < trust(1.25, 400) < trust(1.6, 400) < 1.0
    assert trust(1.05, 400) == pytest.approx(trust(1 / 1.05, 400), rel=0.1)
    assert trust(1.25, 40) < trust(1.25, 400)  # a few seconds say less than a minute


def test_what_the_beat_explains_of_a_pace_stays(reference: DeviceFit) -> None:
    busy = seen(reference, 1.5, 1.4e-4, there=1e-4)
    assert busy.same_class
    assert busy.likely == pytest.approx(PER_READING * math.log(1.4))
    assert busy.believed == pytest.approx(math.log(1.5), abs=0.02)
    # Each family feels a neighbour in its own way.
    assert busy.class_distance.family_pace > seen(reference, 1.0).class_distance.family_pace
    assert seen(reference, 1.5, 1.4e-4, there=1e-4, moments=5).trust < busy.trust
    assert seen(reference, 2.4, 1.8e-4, there=1e-4).same_class  # more than twice as long, but for a reason
    assert not seen(reference, 2.4).same_class


def test_families_that_each_have_a_pace_of_their_own_make_a_stranger(reference: DeviceFit) -> None:
    found = seen(reference, 1.6, elementwise=1.0)
    assert (found.class_distance, found.trust, found.same_class) == (OTHER_CLASS, 1.0, False)


@pytest.mark.parametrize("factor", [0.3, 3.0, 1e6])
def test_a_machine_far_faster_or_slower_is_a_stranger(reference: DeviceFit, factor: float) -> None:
    found = seen(reference, factor)
    assert (found.class_distance, found.trust, found.same_class) == (OTHER_CLASS, 1.0, False)


def test_the_framework_of_a_stranger_goes_at_its_own_pace(reference: DeviceFit) -> None:
    own = {name: 3.0 * cost for name, cost in FRAMEWORK.items()}
    here = [
        replace(step, seconds=step.seconds + sum((own[n] - FRAMEWORK[n]) * count for n, count in step.counts.items()))
        for step in steps(40, 7)
    ]
    misled = {**RATES, "dispatch_seconds": 9.0 * RATES["dispatch_seconds"]}  # timed in a moment that was not the usual
    taught = fitting.fit_device(here, misled, device="cpu", threads=2, expected=Expectation(reference))
    found = framework_seconds(here[0].counts, taught.framework)
    assert found == pytest.approx(framework_seconds(here[0].counts, own), rel=0.15)


@pytest.mark.parametrize("same_class", [True, False])
def test_a_few_seconds_know_what_a_framework_takes_elsewhere(reference: DeviceFit, same_class: bool) -> None:
    taught = fitting.fit_device(steps(3, 7), RATES, device="cpu", threads=2, expected=Expectation(reference, same_class=same_class))
    for name, cost in reference.framework.items():
        assert taught.framework[name] == pytest.approx(cost, rel=0.5, abs=1e-9)
    assert not fitting.fit_device(steps(3, 7), RATES, device="cpu", threads=2).framework


def test_costs_of_another_machine_are_brought_to_this_ones_rates(reference: DeviceFit) -> None:
    rates = {"dispatch_seconds": 1e-6, "flops/float32": 4 * RATES["flops/float32"], "bytes_per_second": 2e10}
    there = reference.families["elementwise"].parameters
    here = Expectation(reference).costs("elementwise", rates, math.log(3.0))
    assert here["flops@aten::add"] == pytest.approx(there["flops@aten::add"] / 4)
    assert here["bytes"] == pytest.approx(there["bytes"] / 2)
    assert here["latency@aten::exp"] == pytest.approx(3 * there["latency@aten::exp"])
    assert ARITHMETIC_BY_FLOOR not in here


def interval_taught_by(known: DeviceFit, observed: list[StepObservation], spread: float) -> dict[str, float]:
    random = np.random.default_rng(4)
    here = [replace(step, seconds=step.seconds * math.exp(random.normal(0, spread))) for step in observed]
    taught = fitting.fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(known, same_class=True))
    return dict(taught.interval)


def test_the_interval_of_the_same_kind_is_kept_and_moves_with_what_is_seen_here(reference: DeviceFit) -> None:
    known = replace(reference, interval={"base": 0.1, "ops": 0.5, "held_out": 0.2})
    little, much = (interval_taught_by(known, steps(n, 7), 0.3) for n in (20, 300))
    calm = interval_taught_by(known, steps(300, 7), 0.0)
    assert calm["base"] < 0.1 < little["base"] < much["base"]
    assert much["base"] > 0.2
    # One network that is far off does not make all of them as uncertain.
    assert little["held_out"] == pytest.approx(2.0 * little["base"])


def test_without_a_network_the_interval_of_the_same_kind_stays(reference: DeviceFit) -> None:
    blocks = [replace(step, family="matmul") for step in steps(40, 7)]
    assert interval_taught_by(reference, blocks, 0.0) == reference.interval


def test_an_op_is_recovered_from_its_regression_inputs() -> None:
    found = profile.load(RECORD)
    for family, fit in found.fit("cpu", 2).families.items():
        for row, op in list(zip(fit.x.tolist(), fit.op_index, strict=True))[:20]:
            work = work_at(family, fit.ops[op], row)
            assert inputs_of(work) == pytest.approx(row, abs=1e-6)
            assert op_label(work) == fit.ops[op]


def test_sizes_are_recovered_to_the_last_register() -> None:
    sizes = tuple(float(16 * n) for n in range(1, 1 + len(FAMILIES["matmul"].sizes) + len(CONTEXT_SIZES)))
    work = Work("matmul", "aten::mm", "float32", 3.0, 7.0, sizes, (0.0,) * len(FAMILIES["matmul"].flags))
    assert work_at("matmul", op_label(work), inputs_of(work)).sizes == sizes


def test_a_variant_is_recovered_from_its_sizes() -> None:
    family = FAMILIES["convolution"]
    sizes = (8.0, 1.0, 1.0, 64.0, 9.0, *[100.0] * (len(family.sizes) + len(CONTEXT_SIZES) - 5))
    work = Work("convolution", "aten::convolution", "bfloat16", 3.0, 7.0, sizes, (0.0,) * len(family.flags))
    recovered = work_at("convolution", op_label(work), inputs_of(work))
    assert op_label(work) == "aten::convolution/depthwise:bfloat16"
    assert (recovered.op, recovered.dtype, op_label(recovered)) == (work.op, work.dtype, op_label(work))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layout_is_recovered_from_its_label(dtype: str) -> None:
    sizes = tuple(float(2**i) for i in range(len(FAMILIES["normalization"].sizes) + len(CONTEXT_SIZES)))
    flags = (0.0,) * (len(FAMILIES["normalization"].flags) + len(CONTEXT_FLAGS))
    work = Work("normalization", f"aten::native_batch_norm{SUFFIX}rows", dtype, 3.0, 7.0, sizes, flags)
    recovered = work_at("normalization", op_label(work), inputs_of(work))
    assert (recovered.op, recovered.dtype) == (work.op, work.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_names_and_dtypes_are_told_apart(dtype: str) -> None:
    sizes = tuple(float(2**i) for i in range(len(FAMILIES["optimizer"].sizes) + len(CONTEXT_SIZES)))
    work = Work("optimizer", "optimizer::Adam", dtype, 3.0, 7.0, sizes, (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0))
    recovered = work_at("optimizer", op_label(work), inputs_of(work))
    assert (recovered.op, recovered.dtype, recovered.flags) == (work.op, work.dtype, work.flags)
    assert recovered.sizes == pytest.approx(work.sizes)
