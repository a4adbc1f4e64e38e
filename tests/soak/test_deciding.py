"""Very many decisions, networks, batches and faults."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from random import Random

import psutil
import pytest
import torch
from pricing.test_price_properties import NETWORKS, RECORD, check, pairs_of_batches, random_network, real_profiles
from test_untouched_by_failures import FUNCTIONS, functions_entered, inject, workload

import placer
from placer import machine
from placer import profile as profiles
from placer.pricing.predict import predict
from placer.profile.profile import Profile
from placer.tracing import trace_here
from placer.workload import make_workload

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
CALLS, CALLS_PER_NETWORK = 100_000, 50
MODULES = 1000
#: In each function, for each of two workloads and three faults.
POINTS = 200
#: Memory the process may gain between a tenth of the calls and all of them.
MOST_GROWTH = 100 * 2**20
BATCHES = tuple(2**n for n in range(17))

Note = Callable[[str, str], None]


@pytest.fixture
def measured() -> Profile:
    return profiles.load(RECORD)


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())


def test_a_hundred_thousand_decisions(measured: Profile, share: float, note: Note) -> None:
    profiles.save(replace(measured, fingerprint=machine.fingerprint()))
    process, random = psutil.Process(), Random(0)
    networks = max(int(CALLS * share) // CALLS_PER_NETWORK, 20)
    start = tensors = files = threads = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(networks):
            if number == networks // 10:
                start, tensors = process.memory_info().rss, live_tensors()
                files, threads = process.num_fds(), threading.active_count()
            model, x = random_network(random)
            trains = next(model.parameters(), None) is not None
            for _ in range(CALLS_PER_NETWORK):
                mode = random.choice(("train", "infer")) if trains else "infer"
                found = placer.choose(model, x, mode=mode, devices=["cpu"], move=False)
                assert found.confidence == 1.0
            del model
    growth = process.memory_info().rss - start
    assert growth < MOST_GROWTH
    assert live_tensors() <= tensors
    assert process.num_fds() <= files
    assert threading.active_count() <= threads
    calls = networks * CALLS_PER_NETWORK
    grown = f"memory grew by {max(growth, 0) / 2**20:.0f} MiB"
    note("decisions", f"{calls:,} calls; {grown}, no tensor, file or thread more")


def test_a_thousand_random_modules(measured: Profile, share: float, note: Note) -> None:
    random, done = Random(1), 0
    for _ in range(max(int(MODULES * share), 20)):
        model, x = random_network(random)
        trains = next(model.parameters(), None) is not None
        for mode in ("train", "infer") if trains else ("infer",):
            step = trace_here(make_workload(model, batch=x, mode=mode))
            check(predict(step, measured, devices=("cpu",), threads=2)["cpu"])
        done += 1
    note("modules", f"{done:,} modules traced and priced, no exception")


def test_every_power_of_two(handmade_profile: Profile, note: Note) -> None:
    every = {**real_profiles(), "made by hand": handmade_profile}
    results = [pairs_of_batches(name, BATCHES, every) for name in NETWORKS]
    assert [line for _, wrong in results for line in wrong] == []
    pairs = sum(compared for compared, _ in results)
    note("batches", f"0 of {pairs:,} pairs of batches; {len(NETWORKS)} networks, {len(every)} profiles")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_faults_at_very_many_points(name: str, measured: Profile, share: float, note: Note) -> None:
    profiles.save(replace(measured, fingerprint=machine.fingerprint()))
    tried = unreached = 0
    for reads in (False, True):
        for error in (RuntimeError("injected"), MemoryError("injected"), KeyboardInterrupt("injected")):
            model, optimizer, options = workload(reads)
            points = range(1, functions_entered(FUNCTIONS[name], model, options) + 1)
            for point in Random(repr(error)).sample(points, min(len(points), max(int(POINTS * share), 10))):
                tried += 1
                unreached += not inject(FUNCTIONS[name], model, optimizer, options, error, point)
    assert unreached < 0.1 * tried
    note(f"faults in {name}", f"{tried - unreached:,} faults, nothing changed")
