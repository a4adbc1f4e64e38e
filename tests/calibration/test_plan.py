"""What is measured next: every family first, then where time teaches most."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from torch import nn

from placer.calibration import plan
from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Accelerator, Limit, Probe
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.calibration.plan import Planner, too_few

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 5e10, "bytes_per_second": 1e10}


def observation(family: str, factor: float = 1.0) -> StepObservation:
    numel = 1000.0
    features = (numel, 12 * numel, numel, 12 * numel, numel, numel, 1e6, 1.0, 0.0, *(0.0,) * 7)
    op = OpObservation("elementwise", "aten::add", "float32", features, 2e-6 * factor, 0.0, 0.0, 1)
    return StepObservation("cpu", 1, family, "x", 1e-3, 0.0, {}, (op,))


def counts(planner: Planner) -> dict[str, int]:
    """Probes drawn so far, by family."""
    return {name: state.probes for name, state in planner._families.items()}


def after(probes: int, factors: tuple[float, ...] = (1.0,), **options: float) -> Planner:
    """A planner after so many probes, whose elementwise residuals vary by ``factors``."""
    planner = Planner(RATES, seed=0, longest_step=0.15)
    for number in range(probes):
        family = planner.next().family
        factor = factors[number % len(factors)] if family == "elementwise" else 1.0
        fails = family in options
        planner.learn(family, None if fails else observation(family, factor), options.get(family, 0.01))
    return planner


def test_time_goes_where_it_teaches_most() -> None:
    assert counts(after(2 * len(PROPOSERS))) == dict.fromkeys(PROPOSERS, 2)  # two of each before more of any
    drawn = counts(after(120))
    by_weight = sorted(PROPOSERS, key=lambda name: PROPOSERS[name][1])
    assert drawn[by_weight[-1]] > drawn[by_weight[0]] >= 2
    varied = counts(after(100, (math.exp(-3), math.exp(3))))
    assert varied["elementwise"] > counts(after(100))["elementwise"]


def test_a_family_that_cannot_run_here_is_not_tried_for_ever() -> None:
    assert counts(after(100, network=1.0))["network"] < 20  # failures cost time too
    assert counts(after(100, recurrent=1e-5))["recurrent"] < 25


def test_some_blocks_are_made_for_much_shorter_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an op costs while everything stays in the nearest caches is learnt from short steps alone."""
    given: dict[str, list[float]] = {"network": [], "matmul": []}

    def proposer(name: str) -> Callable[[Random, Limit], Probe]:
        def propose(_: Random, limit: Limit) -> Probe:
            given[name].append(limit.flops)
            return Probe(name, "x", nn.Identity, tuple, "infer")

        return propose

    monkeypatch.setattr(plan, "PROPOSERS", {name: (proposer(name), 1.0) for name in given})
    planner = Planner(RATES, seed=0, longest_step=0.05, short=0.5)
    for _ in range(400):
        planner.learn(planner.next().family, None, 0.01)
    longest = planner.limit.flops
    assert set(given["network"]) == {longest}
    shorter = [flops for flops in given["matmul"] if flops < longest]
    assert 0.35 < len(shorter) / len(given["matmul"]) < 0.65
    assert plan.SHORTEST * longest <= min(shorter) < 0.02 * longest


def test_a_few_probes_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Limit] = []

    def propose(random: Random, limit: Limit) -> Probe:
        given.append(limit)
        return next_probe(random, limit)

    next_probe = PROPOSERS["reduction"][0]
    monkeypatch.setattr(plan, "PROPOSERS", {"reduction": (propose, 1.0)})
    planner = Planner(RATES, seed=0, longest_step=0.01, rarely=0.06)
    for _ in range(300):
        planner.next()
    usual, rare = sorted({limit.flops for limit in given})
    assert rare == pytest.approx(6 * usual)
    assert 5 < sum(limit.flops == rare for limit in given) < 60


def test_an_accelerators_probes_have_room_in_its_memory() -> None:
    fast = {"dispatch_seconds": 2e-6, "flops/float32": 5e13, "flops/float16": 4e14, "bytes_per_second": 3e12}
    planner = Planner(fast, seed=0, longest_step=0.02, rarely=0.06, memory=8e9)
    known = Accelerator({"float16": 1 / 8}, int(8e9 / plan.BYTES_PER_ELEMENT))
    assert planner.limit == Limit(0.3 * 0.02 * 5e13, 2e9, plan.MOST_OF_BRANCH, known)
    assert planner.limit.share(0.1).branch == plan.MOST_OF_BRANCH
    roomy = Planner(fast, seed=0, longest_step=0.02, memory=8e10)
    assert roomy.limit.bytes == pytest.approx(0.3 * 0.02 * 3e12)
    assert roomy.limit.most_elements == 1 << 27
    # A CPU's memory is large beside what a step moves there.
    assert Planner(fast, seed=0, longest_step=0.02).limit.branch == math.inf


def test_the_same_seed_draws_the_same_probes() -> None:
    def names(seed: int) -> list[str]:
        planner = Planner(RATES, seed=seed, longest_step=0.15)
        found = []
        for _ in range(2 * len(PROPOSERS)):
            probe = planner.next()
            planner.learn(probe.family, None, 0.01)
            found.append(probe.name)
        return found

    assert names(1) == names(1) != names(2)


def test_families_with_too_few_probes_are_named() -> None:
    enough = [observation(name) for name in PROPOSERS for _ in range(2)]
    assert too_few(enough) == ()
    assert too_few(enough[2:]) == (next(iter(PROPOSERS)),)
    assert set(too_few([])) == set(PROPOSERS)
