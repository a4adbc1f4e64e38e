"""A made-up device: fitting recovers the time of steps it never saw, and knows how far off it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting import device as fitting
from placer.calibration.fitting.framework import learnt
from placer.calibration.fitting.residual import most_points
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing.costs import CostModel
from placer.pricing.framework import BACKWARD, FORWARD
from placer.pricing.operators import feature_names
from placer.pricing.predict import Z90
from placer.profile.profile import DeviceFit

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}
FRAMEWORK = {"step": 2e-5, "forward_op": 1e-6, "python_call": 3e-6}
NOISE = 0.02


def _op(random: np.random.Generator) -> OpObservation:
    """An op of the made-up device: a latency, arithmetic and traffic, and an efficiency that varies smoothly."""
    if random.random() < 0.5:
        m, k, n = np.exp(random.uniform(np.log(8), np.log(1024), 3)).tolist()
        flops, moved = 2 * m * k * n, 4 * (m * k + k * n + m * n)
        sizes = (1.0, m, n, k, m * k, k * n, m * n, min(m, n, k), 1e6, 1.0, 0.0, 0.0)
        features = (flops, moved, *sizes, *(0.0,) * 10)
        seconds = (4e-6 + flops / 3e10 + moved / 2e10) * (1 + 0.5 * math.exp(-m / 100))
        family, op = "matmul", "aten::mm"
    else:
        numel = float(np.exp(random.uniform(np.log(64), np.log(1 << 20))))
        flops, moved = numel, 12 * numel
        features = (flops, moved, numel, moved, numel, numel, 1e6, 1.0, 0.0, 0.0, *(0.0,) * 8)
        op = str(random.choice(["aten::add", "aten::exp"]))
        seconds = (2e-6 + moved / 8e9) * (2.0 if op == "aten::exp" else 1.0)
        family = "elementwise"
    assert len(features) == 2 + len(feature_names(family))
    measured = seconds * math.exp(random.normal(0, NOISE))
    return OpObservation(family, op, "float32", features, measured, 0.0, 0.02, int(random.integers(1, 4)))


def steps(count: int, seed: int) -> list[StepObservation]:
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        ops = tuple(_op(random) for _ in range(int(random.integers(1, 9))))
        counts = {
            "step": 1.0, "forward_op": float(sum(op.count for op in ops)), "python_call": float(random.integers(0, 30)),
        }  # fmt: skip
        own = sum(FRAMEWORK[name] * count for name, count in counts.items())
        total = sum((op.seconds or 0.0) * op.count for op in ops) + own
        seconds = total * math.exp(random.normal(0, NOISE))
        found.append(StepObservation("cpu", 2, "network", f"step {i}", seconds, 0.02, counts, ops))
    return found


@pytest.fixture(scope="module")
def fit() -> DeviceFit:
    return fitting.fit_device(steps(160, 0), RATES, device="cpu", threads=2)


@pytest.fixture(scope="module")
def unseen() -> list[StepObservation]:
    return steps(150, 1)


def _errors(fit: DeviceFit, held: Sequence[StepObservation]) -> tuple[list[float], list[float]]:
    """|log(measured / predicted)| of each step, and the sigma that was promised."""
    model = CostModel(fit)
    errors, sigmas = [], []
    for step in held:
        predicted, sigma = fitting.predict_step(step, model)
        errors.append(abs(math.log(step.seconds / predicted)))
        sigmas.append(math.hypot(fit.interval["base"], fit.interval["ops"] * sigma))
    return errors, sigmas


def test_unseen_steps_are_predicted_within_ten_percent(fit: DeviceFit, unseen: list[StepObservation]) -> None:
    errors, _ = _errors(fit, unseen)
    assert np.median(errors) < 0.05
    assert np.mean(np.array(errors) < 0.10) > 0.85


def test_nine_in_ten_lie_within_the_interval(fit: DeviceFit, unseen: list[StepObservation]) -> None:
    errors, sigmas = _errors(fit, unseen)
    inside = np.mean([error <= Z90 * sigma for error, sigma in zip(errors, sigmas, strict=True)])
    assert 0.80 <= inside <= 0.98
    assert np.median(sigmas) < 0.15


def test_blocks_that_are_far_off_do_not_widen_the_interval_of_networks(fit: DeviceFit) -> None:
    random = np.random.default_rng(5)
    odd = [replace(s, family="matmul", seconds=s.seconds * math.exp(random.normal(0, 0.5))) for s in steps(160, 2)]
    mixed = [step for pair in zip(steps(160, 0), odd, strict=True) for step in pair]
    # One in four is held out: of every second pair the network.
    with_blocks = fitting.fit_device(mixed, RATES, device="cpu", threads=2)
    assert with_blocks.interval["held_out"] < 1.5 * fit.interval["held_out"]


def test_the_frameworks_share_is_recovered(fit: DeviceFit) -> None:
    assert fit.framework["python_call"] == pytest.approx(FRAMEWORK["python_call"], rel=0.5)
    assert min(fit.framework.values()) >= 0.0


def in_phases(count: int, costs: dict[str, float], *, apart: bool) -> list[StepObservation]:
    """Networks in which functions and nodes grow with the depth, timed as a whole or phase by phase."""
    random = np.random.default_rng(7)
    found = []
    for i in range(count):
        depth = float(random.integers(1, 40))
        counts = {"step": 1.0, "training_step": 1.0, "python_call": 5 * depth + random.integers(0, 2),
                  "autograd_node": 2 * depth + 1}  # fmt: skip
        spent = {
            phase: sum(costs.get(name, 0.0) * counts.get(name, 0.0) for name in names) * math.exp(random.normal(0, 0.1))
            for phase, names in (("forward", FORWARD), ("backward", BACKWARD))
        }
        op = _op(random)
        seconds = sum(spent.values()) + (op.seconds or 0.0) * op.count
        found.append(StepObservation("cpu", 2, "network", f"step {i}", seconds, 0.02, counts, (op,),
                                     gaps=spent if apart else {}))  # fmt: skip
    return found


def test_phases_timed_apart_tell_costs_apart_that_grow_together() -> None:
    costs = {"step": 2e-6, "python_call": 1e-6, "training_step": 2e-5, "autograd_node": 3e-6}

    def worst(apart: bool) -> float:
        found = fitting.fit_device(in_phases(80, costs, apart=apart), RATES, device="cpu", threads=2).framework
        return max(abs(found[name] / costs[name] - 1.0) for name in ("python_call", "autograd_node"))

    assert worst(apart=True) < 0.1
    assert worst(apart=False) > 0.2


def test_what_a_profile_was_fitted_by_before_is_learnt_of_its_kin_too() -> None:
    costs = {"python_call": 0.5e-6, "autograd_node": 2e-6, "backward_op": 1e-6}
    steps = in_phases(80, costs, apart=True)
    now = learnt(steps, {})
    assert "op_reuse_distance_30_forward_ops" not in now
    assert learnt(steps, {"python_call": 1e-6, "op_reuse_distance_30_forward_ops": 1e-6}) == [*now, "op_reuse_distance_30_forward_ops"]


def test_what_is_stored_is_plain_numbers_of_the_right_shape(fit: DeviceFit) -> None:
    assert (fit.device, fit.threads, fit.rates) == ("cpu", 2, RATES)
    assert set(fit.families) == {"matmul", "elementwise"}
    for name, family in fit.families.items():
        n = len(family.y)
        assert n == len(family.op_index) == len(family.point_noise) == len(family.weights) <= most_points(name)
        assert family.x.shape == (n, len(family.feature_names)) == (n, len(family.length_scales))
        assert all(type(value) is float for value in (*family.length_scales, family.mean, family.signal, family.noise))
    assert fit.families["elementwise"].ops == ("aten::add", "aten::exp")


def test_what_was_measured_is_counted_in_samples(fit: DeviceFit) -> None:
    taken = [op.family for step in steps(160, 0) for op in step.ops]
    assert {name: family.measured for name, family in fit.families.items()} == Counter(taken)


def test_a_family_with_too_few_samples_stays_at_physics() -> None:
    few = steps(6, 3)
    thin = fitting.fit_device(few, RATES, device="cpu", threads=1)
    counted = {name: sum(op.family == name for o in few for op in o.ops) for name in ("matmul", "elementwise")}
    assert set(thin.families) == {name for name, count in counted.items() if count >= fitting.LEAST_POINTS}
    assert thin.interval["base"] > 0


def test_disturbed_steps_are_survived(unseen: list[StepObservation]) -> None:
    random = np.random.default_rng(5)
    observed = steps(160, 0)
    for i in random.choice(len(observed), 8, replace=False):
        step = observed[i]
        observed[i] = StepObservation(**{**step.__dict__, "seconds": step.seconds * 10})
    errors, _ = _errors(fitting.fit_device(observed, RATES, device="cpu", threads=2), unseen)
    assert np.median(errors) < 0.06


def test_samples_kept_are_spread_over_the_shapes() -> None:
    observed = steps(80, 6)
    kept = fitting.samples(observed, most=20)
    by_family = {name: [s for s in kept if s.family == name] for name in ("matmul", "elementwise")}
    assert all(len(members) == 20 for members in by_family.values())
    sizes = [op.features[1] for step in observed for op in step.ops if op.family == "elementwise"]
    kept_sizes = [s.features[1] for s in by_family["elementwise"]]
    assert max(kept_sizes) >= np.quantile(sizes, 0.95)
    assert min(kept_sizes) <= np.quantile(sizes, 0.05)
    assert all(s.device == "cpu" and s.host_seconds == 0.0 for s in kept)


def test_spread_out_takes_the_corners_first() -> None:
    x = np.array([[0.0], [0.1], [0.2], [10.0], [5.0]])
    same = np.zeros(5, dtype=np.int64)
    assert set(fitting.spread_out(x, same, 3).tolist()) == {0, 3, 4}
    assert len(fitting.spread_out(x, same, 99)) == 5
