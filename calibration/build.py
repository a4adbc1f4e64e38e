"""Builds a profile from what a journal holds: fits, noise and warnings."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from placer import profile
from placer.calibration import fitting
from placer.calibration.benchmarks.fixed import PACE
from placer.calibration.measuring.bench import WAITING
from placer.calibration.measuring.journal import Journal, StepObservation, infeasible
from placer.calibration.plan import too_few
from placer.errors import CalibrationError
from placer.pricing.timeline import LONG_STEPS, MANY_TURNS
from placer.profile import MUCH, OTHERS, Device, Profile

#: Standard deviations between the first and the ninth tenth of a normal distribution, and the factor from which on it
#: is told that the machine's speed varies.
TENTHS, NOTABLE = 2.563, 1.5
#: What to tell of an accelerator whose kernels the event recorder does not show.
WAITED_FOR = "torch's profiler shows none of its kernels, so every op was timed by waiting for it, which is coarser"


def build(journal: Journal, fingerprint: Mapping[str, Any], interrupted: bool) -> Profile:
    """The profile of what ``journal`` holds; raises CalibrationError where that is too little."""
    fits: list[Device] = []
    spreads: list[float] = []
    lacking: list[str] = []
    contradicted: list[str] = []
    known, others = fitting.shipped_references(), journal.others_share()
    # Of a CPU's numbers of threads one comes first: what several take follows from it.
    for (device, threads), rates in sorted(journal.rates.items(), key=lambda item: (item[0][0] != "cpu", item[0])):
        observations = journal.of(device, threads)
        if not enough(journal, device, threads):
            if device not in journal.broken:
                lacking.append(f"{device} with {threads} threads was hardly measured")
            continue
        if journal.timers.get((device, threads)) == WAITING:
            lacking.append(f"{device}: {WAITED_FOR}")
        core = _one_core(fits, observations, rates, known, threads, fingerprint) if device == "cpu" else None
        if core is not None:
            fit = fitting.fit_cores(observations, rates, core, threads)
            if core not in fits:
                fits.append(replace(core, interval=fit.interval))
        else:
            step_seconds = journal.seconds[device, threads] / len(observations)
            if device == "cpu":
                candidates = fitting.expectations(known, device, threads, fingerprint)
                fit = fitting.fit_device(
                    observations,
                    rates,
                    threads=threads,
                    step_seconds=step_seconds,
                    expected=fitting.of_nearest_pace(candidates, observations, step_seconds),
                )
            else:
                gpu = fitting.catalog_gpu(fingerprint, device)
                fit = fitting.fit_accelerator(observations, rates, device=device, threads=threads, gpu=gpu)
                contradicted += fitting.contradictions(observations, device, gpu) if gpu else ()
        fits.append(fit)
        spreads += [o.spread for o in observations]
        few = () if core is not None else too_few(observations)
        if few:
            lacking.append(f"{device} with {threads} threads: too few samples of {', '.join(few)}")
    fitted = {fit.device for fit in fits}
    if not fits:
        why = "".join(f"; {sentence}" for sentence in broken_devices(journal))
        if others is not None and others >= MUCH:
            why += f"; other programs had {others:.0%} of the cores"
        raise CalibrationError(f"too little was measured to fit anything{why}; run placer calibrate again")
    noise = {"median_spread": statistics.median(spreads), "p90_spread": statistics.quantiles(spreads, n=10)[-1]}
    if others is not None:
        noise[OTHERS] = others
    return Profile(
        schema=profile.SCHEMA,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        fingerprint=fingerprint,
        fits=tuple(fits),
        noise=noise,
        warnings=(
            *disturbance(noise),
            *noise_warnings(fits),
            *contradicted,
            *broken_devices(journal),
            *lacking,
            *infeasible(journal.failures, Counter((o.device, o.family) for o in journal.observations)),
        ),
        complete=not interrupted,
        seconds=sum(journal.seconds.values()),
        unusable={d: reason for d, reason in journal.broken.items() if d not in fitted},
    )


def _one_core(
    fits: Sequence[Device],
    observations: Sequence[StepObservation],
    rates: Mapping[str, float],
    known: Sequence[Profile],
    threads: int,
    fingerprint: Mapping[str, Any],
) -> Device | None:
    """The fit of one core, by which many ``threads`` are priced; None for few threads, and where no core is known.

    Where nothing was measured on one thread, it is that of the nearest shipped profile, at this machine's pace.
    """
    if threads <= fitting.FEW_THREADS:
        return None
    measured = next((fit for fit in fits if fit.device == "cpu" and fit.threads == 1), None)
    if measured is not None:
        return measured
    nearest = next(iter(fitting.expectations(known, "cpu", 1, fingerprint)), None)
    if nearest is None or nearest.fit.threads != 1:
        return None
    return fitting.core_of_steps(observations, rates, nearest, threads)


def broken_devices(journal: Journal, *devices: str) -> list[str]:
    """What became of the devices that could not be used, or not to the end (all, or these): a sentence each."""
    told = []
    for device, reason in journal.broken.items():
        count = sum(o.device == device for o in journal.observations)
        kept = any(enough(journal, *key) for key in journal.rates if key[0] == device)
        what = f"worked no more after {count} probes, which are kept" if kept else "cannot be used here and is left out"
        if not devices or device in devices:
            told.append(f"{device} {what}: {reason}")
    return told


def enough(journal: Journal, device: str, threads: int) -> bool:
    """Whether there is anything to fit; where not, all time spent on the device is lost."""
    return sum(step.family != PACE for step in journal.of(device, threads)) >= fitting.LEAST_POINTS


def disturbance(noise: Mapping[str, float]) -> tuple[str, ...]:
    """A warning about other programs that had much of the cores, in one line; empty where they had not."""
    share = noise.get(OTHERS, 0.0)
    if share < MUCH:
        return ()
    spread = f"repeated steps spread by {noise['median_spread']:.0%} in the median"
    return (
        f"other programs had {share:.0%} of the cores meanwhile ({spread}), so the machine counts as slower: "
        "run placer calibrate when it is quieter",
    )


def noise_warnings(fits: Sequence[Device]) -> tuple[str, ...]:
    """A warning about a machine whose speed varies, in one line; empty where it hardly matters."""
    on_cpu = [fit for fit in fits if fit.device == "cpu"]
    varies = max((math.exp(TENTHS * fit.interval.get("moment", 0.0)) for fit in on_cpu), default=1.0)
    longer = max((fit.rates.get(LONG_STEPS, 1.0) for fit in on_cpu), default=1.0)
    seen = []
    if varies >= NOTABLE:
        seen.append(f"its speed varies by {varies:.1f}x, and intervals are as wide")
    if longer >= NOTABLE:
        seen.append(f"beside other programs steps of {MANY_TURNS * 1e3:.0f} ms and more take {longer:.1f}x")
    return (f"this machine is shared: {'; '.join(seen)}",) if seen else ()
