"""Numbers and offsets of a device, found again in samples that were made by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from priced import elementwise, product

from placer.calibration.fitting.adapt import LEAST_POINTS, OTHER_CLASS, SAME_CLASS, Prior, adapt
from placer.calibration.fitting.samples import MeasuredOp
from placer.pricing import CostModel, Work
from placer.pricing.networks import cpu_network
from placer.profile import Device

from .made_up import NOISE, device, observed

ADD, EXP = "aten::add", "aten::exp"
PRIORS = pytest.mark.parametrize("prior", [SAME_CLASS, OTHER_CLASS], ids=["same class", "other class"])


def loops(count: int, op: str = ADD, seed: int = 0, *, most: float = 1 << 20) -> list[Work]:
    sizes = np.exp(np.random.default_rng(seed).uniform(np.log(64), np.log(most), count)).tolist()
    return [elementwise(op, size, 12 * size) for size in sizes]


def products(count: int, seed: int = 0) -> list[Work]:
    shapes = np.exp(np.random.default_rng(seed).uniform(np.log(8), np.log(1024), (count, 3))).tolist()
    return [product(*shape) for shape in shapes]


def measured(
    works: Sequence[Work], by: Device, factor: float = 1.0, noise: float = NOISE
) -> dict[str, list[MeasuredOp]]:
    """These works on a device, times ``factor`` and a little noise."""
    seconds, _, _ = CostModel(by).price_works(works)
    found: dict[str, list[MeasuredOp]] = {}
    for op in observed(works, [factor * each for each in seconds], np.random.default_rng(3), noise):
        found.setdefault(op.family, []).append(MeasuredOp(op, 0.02))
    return found


def times(one: MeasuredOp, factor: float) -> MeasuredOp:
    return replace(one, op=replace(one.op, seconds=factor * (one.op.seconds or 0.0)))


def adapted(
    ops: Mapping[str, Sequence[MeasuredOp]], *, pace: float = 0.0, believed: float = 0.0, prior: Prior = OTHER_CLASS
) -> Device:
    """The made-up device, as far as these ops change what is known of it."""
    return replace(device(), families=adapt(device(), ops, pace, believed, prior))


def apart(one: Device, other: Device, works: Sequence[Work]) -> np.ndarray:
    """log(price on one device / price on another) of each work."""
    return np.log(CostModel(one).price_works(works)[0]) - np.log(CostModel(other).price_works(works)[0])


def moved(found: Device, works: Sequence[Work], known: Device | None = None) -> float:
    """The log by which prices have changed from those of the made-up device, in the middle."""
    return float(np.median(apart(found, known or device(), works)))


def with_family(family: str, **changes: object) -> Device:
    known = device()
    return replace(known, families={**known.families, family: replace(known.families[family], **changes)})  # type: ignore[arg-type]


def exp_slower(by: float) -> Device:
    known = device().families["elementwise"]
    return with_family("elementwise", offsets={**known.offsets, EXP: known.offset((EXP,)) + by})


@PRIORS
def test_the_offset_of_an_op_is_found_with_many_samples(prior: Prior) -> None:
    found = adapted(measured([*loops(300), *loops(300, EXP, 1)], exp_slower(0.5)), prior=prior)
    assert moved(found, loops(50, EXP, 2)) == pytest.approx(0.5, abs=0.1)
    assert moved(found, loops(50, ADD, 2)) == pytest.approx(0.0, abs=0.1)
    assert found.families["elementwise"].measured == 600
    assert found.families["matmul"].offsets == {"": 0.0, **device().families["matmul"].offsets}


def test_numbers_are_found_again() -> None:
    network, known = cpu_network("matmul"), device().families["matmul"]
    assert network is not None
    spread = np.std(list(network.devices.values()), axis=0)
    true = with_family("matmul", numbers=tuple((np.array(known.numbers) + [0.4, -0.4] * 3 * spread).tolist()))
    unseen = products(100, 5)
    found = adapted(measured(products(400), true))
    before, after = (float(np.median(np.abs(apart(fit, true, unseen)))) for fit in (device(), found))
    assert before > 0.05
    assert after < 0.3 * before
    assert found.families["elementwise"].numbers == device().families["elementwise"].numbers


@PRIORS
def test_a_family_without_samples_moves_by_the_believed_pace_alone(prior: Prior) -> None:
    found = adapted(measured(loops(100), device(), factor=1.5), pace=0.4, believed=0.3, prior=prior)
    known, family = device().families["matmul"], found.families["matmul"]
    assert family.numbers == known.numbers
    assert family.offsets == pytest.approx({"": 0.3, **{name: old + 0.3 for name, old in known.offsets.items()}})
    assert (family.measured, family.sigma) == (0, pytest.approx(math.hypot(known.sigma, prior.family, prior.op)))


def test_disturbed_samples_are_left_out() -> None:
    """One in twenty, ten times too long or far too short."""
    quiet = measured(loops(200, EXP), exp_slower(0.2))["elementwise"]
    factors = [(10.0, 0.02)[i % 2] if i % 20 == 0 else 1.0 for i in range(200)]
    beside = [times(one, factor) for one, factor in zip(quiet, factors, strict=True)]
    alone, disturbed = (moved(adapted({"elementwise": ops}), loops(50, EXP, 2)) for ops in (quiet, beside))
    assert alone == pytest.approx(0.2, abs=0.05)
    assert disturbed == pytest.approx(alone, abs=0.03)


def test_an_accelerator_is_found_beside_what_its_rates_allow() -> None:
    """It has no numbers: each family has a pace, and each op an offset."""
    rates = {**device().rates, "launch_seconds": 0.0}
    accelerator = Device("made-up", 2, rates, {}, {}, {})
    taken = {ADD: 2.0, EXP: 4.0}
    ops = [one for op, factor in taken.items() for one in measured(loops(100, op), accelerator, factor)["elementwise"]]
    few = measured(products(LEAST_POINTS - 1), accelerator)
    families = adapt(accelerator, {"elementwise": ops, **few}, 0.0, 0.0, OTHER_CLASS)
    assert set(families) == {"elementwise"}
    assert families["elementwise"].numbers == ()
    found = replace(accelerator, families=families)
    for op, factor in taken.items():
        assert moved(found, loops(50, op, 2), accelerator) == pytest.approx(math.log(factor), abs=0.05)
