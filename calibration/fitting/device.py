"""Fits all numbers of a CPU to its observed steps: families, the framework's share, and the interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.fitting.adapt import OTHER_CLASS, adapt
from placer.calibration.fitting.framework import fit_framework
from placer.calibration.fitting.interval import fit_interval, log_ratios, predict_step
from placer.calibration.fitting.nearest import Comparison, Expectation, Moments, compare, moments_of, shortened
from placer.calibration.fitting.samples import ops_by_family
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import CostModel
from placer.pricing.networks import cpu_edition
from placer.pricing.timeline import LONG_STEPS, long_share
from placer.profile import Device

#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4
#: Fewest networks that tell a machine's pace.
LEAST_NETWORKS = 12


def fit_device(
    observations: Sequence[StepObservation],
    rates: Mapping[str, float],
    *,
    threads: int,
    expected: Expectation,
    step_seconds: float = 0.15,
) -> Device:
    """All numbers of a CPU: those of its families, the framework's share, and the interval's constants.

    The interval comes from steps that were held out of a first fit; the fit returned has learnt from all of them.
    ``expected`` is what is known of another machine. ``step_seconds``: what measuring one step took. What is learnt is
    the middle of the moments; what they differ by is part of the interval, and its ``moment`` on its own.
    """
    rates = {**rates, **(limits(expected.fit) if expected.same_class else memory_rate(rates, expected.fit.rates))}
    empty = Device("cpu", threads, rates, expected.fit.families, {}, {}, reference=expected.name, edition=cpu_edition())
    # What a step is expected to take, a machine of the same class knows; else a first fit does, as far as it can.
    first = None
    model = CostModel(expected.fit)
    if not expected.same_class:
        first = _fit_once(split(observations)[1], empty, expected, Moments())
        model = CostModel(first[0])
    moments = _moments(observations, model, step_seconds)
    steady = list(observations)
    if moments.long_steps > 0.0:  # as if no other program had taken turns with them
        waited = [moments.long_steps * long_share(predict_step(step, model)[0]) for step in observations]
        steady = [shortened(step, math.exp(-long)) for step, long in zip(observations, waited, strict=True)]
    held, rest = split(steady)
    if first is None or moments.long_steps > 0.0:
        first = _fit_once(rest, empty, expected, moments)
    fit, comparison = first
    interval = fit_interval(held, fit, expected, comparison, moments.spread)
    found, _ = _fit_once(steady, empty, expected, moments)
    if moments.long_steps > 0.0:
        found = replace(found, rates={**rates, LONG_STEPS: math.exp(moments.long_steps)})
    return replace(found, interval={**interval, "moment": moments.spread})


def _moments(observations: Sequence[StepObservation], model: CostModel, step_seconds: float) -> Moments:
    return moments_of(observations, [predict_step(step, model)[0] for step in observations], step_seconds)


def limits(fit: Device) -> dict[str, float]:
    """The rates that bound an op. Of a class of machines they are known better than a minute shows them.

    A second of a shared machine reads them up to twice too low or too high.
    """
    named = ("dispatch_seconds", "bytes_per_second")
    return {name: rate for name, rate in fit.rates.items() if name in named or name.startswith("flops/")}


def memory_rate(rates: Mapping[str, float], there: Mapping[str, float]) -> dict[str, float]:
    """The rate of a machine's memory, half way between a minute's reading and another machine's, ``there``.

    Of three readings on one machine within half an hour one was twice the others.
    """
    return {"bytes_per_second": math.sqrt(rates["bytes_per_second"] * there["bytes_per_second"])}


def split(observations: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """(the steps that are held out of a first fit, all others)."""
    held = [step for i, step in enumerate(observations) if i % HELD_OUT == 0]
    return held, [step for i, step in enumerate(observations) if i % HELD_OUT != 0]


def of_nearest_pace(
    candidates: Sequence[Expectation], observations: Sequence[StepObservation], step_seconds: float
) -> Expectation:
    """Of machines of one class, some of them contended while they were measured, the one nearest to these steps."""

    if len(candidates) == 1:
        return candidates[0]
    moments = [_moments(observations, CostModel(candidate.fit), step_seconds) for candidate in candidates]
    paces = [abs(each.pace or 0.0) for each in moments]
    return candidates[paces.index(min(paces))]


def _fit_once(
    observations: Sequence[StepObservation], empty: Device, expected: Expectation, moments: Moments
) -> tuple[Device, Comparison]:
    measured = ops_by_family(observations)
    ops = [one.op for family in measured.values() for one in family]
    comparison = compare(ops, expected, len(observations), moments)
    prior, pace = comparison.prior, comparison.pace
    fit = replace(empty, families=adapt(empty, measured, pace, comparison.believed, prior))
    fit = replace(fit, framework=fit_framework(observations, fit, expected, comparison))
    return (fit, comparison) if prior != OTHER_CLASS else (_at_pace_of_steps(fit, observations), comparison)


def _at_pace_of_steps(fit: Device, observations: Sequence[StepObservation]) -> Device:
    """The fit of a machine of another class, all its prices times what whole steps took over them in the middle.

    Networks tell it, where there are enough: blocks stand for ops that no network has so many of.
    """
    networks = [step for step in observations if step.family == "network"]
    some = networks if len(networks) >= LEAST_NETWORKS else observations
    slower = math.exp(float(np.median(log_ratios(some, fit))))
    families = {name: family.times(slower) for name, family in fit.families.items()}
    framework = {name: slower * seconds for name, seconds in fit.framework.items()}
    return replace(fit, families=families, framework=framework)
