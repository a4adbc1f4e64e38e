"""Fits all numbers of one device to its observed steps: plain numbers, as a profile stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placer.calibration.fitting.comparison import Comparison, compare
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.fitting.families import ChosenHyperparameters, fit_families
from placer.calibration.fitting.framework import fit_framework
from placer.calibration.fitting.interval import fit_interval
from placer.calibration.fitting.measured_ops import ops_by_family
from placer.calibration.fitting.parallel import worth_workers
from placer.calibration.measuring.observation import StepObservation
from placer.profile import DeviceFit

#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4


def fit_device(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    chosen: ChosenHyperparameters | None = None, expected: Expectation | None = None,
) -> DeviceFit:  # fmt: skip
    """All numbers of a CPU: residuals per family, the framework's share, and the interval's constants.

    The interval comes from steps that were held out of a first fit; the fit returned has learnt from all of them.
    ``chosen`` holds hyperparameters from a fit before, and takes those chosen here. ``expected`` is what is known of
    another machine.
    """
    empty = unfitted(rates, device=device, threads=threads, expected=expected)
    chosen = chosen or ChosenHyperparameters()
    held, rest = split(observations)
    workers = worth_workers(_fitted_ops(rest, expected) + _fitted_ops(observations, expected))
    first = _fit_once(rest, empty, chosen, expected, workers)
    interval = fit_interval(held, first, expected)
    return replace(_fit_once(observations, empty, chosen, expected, workers), interval=interval)


def split(observations: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """(the steps that are held out of a first fit, all others)."""
    held = [step for i, step in enumerate(observations) if i % HELD_OUT == 0]
    return held, [step for i, step in enumerate(observations) if i % HELD_OUT != 0]


def _fitted_ops(observations: Sequence[StepObservation], expected: Expectation | None) -> int:
    """The number of ops that a fit rests on, those of another machine included."""
    transferred = sum(len(family.y) for family in expected.families.values()) if expected is not None else 0
    return transferred + sum(len(step.ops) for step in observations)


def unfitted(
    rates: Mapping[str, float], *, device: str, threads: int, expected: Expectation | None = None, gpu: str = ""
) -> DeviceFit:
    """The fit of a device before anything is learnt; ``gpu`` is the catalog's name of an accelerator."""
    reference = expected.name if expected is not None else ""
    return DeviceFit(device, threads, dict(rates), families={}, framework={}, interval={}, reference=reference, gpu=gpu)


def fit_ops(
    observations: Sequence[StepObservation], empty: DeviceFit, chosen: ChosenHyperparameters,
    expected: Expectation | None, workers: int = 1,
) -> tuple[DeviceFit, tuple[Expectation, Comparison] | None]:  # fmt: skip
    """(``empty`` with the residuals of all families, what other machine they were transferred from and how)."""
    measured = ops_by_family(observations)
    overall = None
    if expected is not None:
        ops = [one.op for family in measured.values() for one in family]
        overall = compare(ops, expected, len(observations), empty.rates)
    transfer_from = (expected, overall) if expected is not None and overall is not None else None
    return replace(empty, families=fit_families(measured, empty, chosen, transfer_from, workers)), transfer_from


def _fit_once(
    observations: Sequence[StepObservation], empty: DeviceFit, chosen: ChosenHyperparameters,
    expected: Expectation | None, workers: int,
) -> DeviceFit:  # fmt: skip
    fit, transfer_from = fit_ops(observations, empty, chosen, expected, workers)
    return replace(fit, framework=fit_framework(observations, fit, transfer_from))
