"""Fits in several processes: the same numbers as in one, and one where processes cost more or cannot be had."""

from __future__ import annotations

import multiprocessing
import os
from functools import partial

import numpy as np
import pytest

from placer.calibration.fitting import device
from placer.calibration.fitting.device import (
    SECONDS_PER_OP,
    SECONDS_TO_START,
    ChosenHyperparameters,
    fit_device,
    run_all,
    worth_workers,
)
from placer.calibration.fitting.transfer import Expectation
from placer.profile.profile import DeviceFit

from .made_up import RATES, slower, steps


def fitted(workers: int, expected: Expectation | None, monkeypatch: pytest.MonkeyPatch) -> DeviceFit:
    monkeypatch.setattr(device, "worth_workers", lambda ops: workers)
    here = slower(steps(40, 7), matmul=1.8, elementwise=1.1)
    return fit_device(here, RATES, device="cpu", threads=2, expected=expected)


@pytest.mark.parametrize("same_class", [None, True, False])
def test_processes_find_the_very_numbers_that_one_finds(
    reference: DeviceFit, same_class: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None if same_class is None else Expectation(reference, same_class=same_class)
    alone, together = (fitted(workers, expected, monkeypatch) for workers in (1, 2))
    assert alone == together
    assert not any(family.x.flags.writeable for family in together.families.values())


def test_what_processes_choose_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "worth_workers", lambda ops: 2)
    chosen = ChosenHyperparameters()
    first = fit_device(steps(40, 7), RATES, device="cpu", threads=2, chosen=chosen)
    kept = dict(chosen.residuals)
    again = fit_device(steps(40, 8), RATES, device="cpu", threads=1, chosen=chosen)
    assert set(kept) == set(first.families)
    assert chosen.residuals == kept
    assert all(again.families[name].length_scales == used.length_scales for name, used in kept.items())


def test_processes_are_started_where_they_save_more_than_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = 2.0 * SECONDS_TO_START / SECONDS_PER_OP
    for cores, ops, workers in ((1, 1e9, 1), (2, 0.9 * enough, 1), (2, 1.1 * enough, 2), (8, 0.9 * enough, 8)):
        monkeypatch.setattr(device, "usable_cores", lambda cores=cores: cores)
        assert worth_workers(int(ops)) == workers


def test_a_process_that_may_have_no_children_fits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "usable_cores", lambda: 8)
    assert worth_workers(10**9) == 8
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    assert worth_workers(10**9) == 1


def product(seed: int) -> float:
    matrix = np.random.default_rng(seed).normal(size=(300, 300))
    return float((matrix @ matrix).sum())


def ends_every_other_process(parent: int) -> int:
    if os.getpid() != parent:
        os._exit(1)
    return parent


def test_results_come_in_order() -> None:
    fits = [partial(product, seed) for seed in range(5)]
    together = run_all(fits, 2)
    assert together == run_all(fits, 1)
    assert together == pytest.approx([product(seed) for seed in range(5)])
    assert run_all([], 2) == []


def test_where_processes_die_one_does_it_all() -> None:
    assert run_all([partial(ends_every_other_process, os.getpid())] * 3, 2) == [os.getpid()] * 3
