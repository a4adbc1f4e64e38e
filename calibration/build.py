"""Builds a profile from what a journal holds: fits, samples, noise and warnings."""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from placer import profile
from placer.calibration import fitting
from placer.calibration.measuring.bench import WAITING
from placer.calibration.measuring.journal import Journal, StepObservation, infeasible
from placer.calibration.measuring.recording import SESSIONS
from placer.calibration.measuring.speed_probe import USUAL_READING, is_alike, usual_reading
from placer.calibration.plan import too_few
from placer.errors import CalibrationError
from placer.profile import DeviceFit, Profile, Sample

#: Samples kept in the profile per family, device and number of threads.
KEPT_SAMPLES = 400
#: Share of the steps that must have run at one speed for only these to be learnt from.
LEAST_USUAL = 0.15
#: Inter-quartile spreads above which a machine is called noisy, and very noisy; and the share of steps at another speed
#: than its usual one above which it is called so too.
NOISY, VERY_NOISY, CONTENDED = 0.12, 0.30, 0.25
#: What to tell of an accelerator whose kernels the event recorder does not show.
WAITED_FOR = "torch's profiler shows none of its kernels, so every op was timed by waiting for it, which is coarser"


def build(journal: Journal, fingerprint: Mapping[str, Any], interrupted: bool, unaided: bool) -> Profile:
    """The profile of what ``journal`` holds; raises CalibrationError where that is too little.

    ``unaided``: the shipped profiles are not built upon.
    """
    fits: list[DeviceFit] = []
    samples: list[Sample] = []
    spreads: list[float] = []
    lacking: list[str] = []
    contradicted: list[str] = []
    chosen = fitting.ChosenHyperparameters()
    known = () if unaided else fitting.shipped_references()
    left_out = 0
    # The CPU first: what its host costs is known better there, and the fit of an accelerator is held by it.
    for (device, threads), rates in sorted(journal.rates.items(), key=lambda item: item[0][0] != "cpu"):
        measured = journal.of(device, threads)
        if not enough(journal, device, threads):
            if device not in journal.broken:
                lacking.append(f"{device} with {threads} threads was hardly measured")
            continue
        if journal.timers.get((device, threads)) == WAITING:
            lacking.append(f"{device}: {WAITED_FOR}")
        usual = usual_reading(o.reading for o in measured)
        of_class = None if usual is None else fitting.pace_of_class(known, device, threads, fingerprint, usual)
        observations, reading = at_one_speed(measured, [r for r in (of_class, usual) if r is not None])
        left_out += len(measured) - len(observations)
        if reading > 0.0:
            rates = {**rates, USUAL_READING: reading}
        expected = fitting.expectation(known, device, threads, fingerprint, reading)
        if device == "cpu":
            fit = fitting.fit_device(
                observations, rates, device=device, threads=threads, chosen=chosen, expected=expected
            )
        else:
            host = next((fit.framework for fit in fits if (fit.device, fit.threads) == ("cpu", threads)), None)
            gpu = fitting.catalog_gpu(fingerprint, device)
            fit = fitting.fit_accelerator(
                observations, rates, device=device, threads=threads, expected=expected, host=host, gpu=gpu
            )
            contradicted += fitting.contradictions(observations, device, gpu) if gpu else ()
        fits.append(fit)
        samples += fitting.samples(observations, most=KEPT_SAMPLES)
        spreads += [o.spread for o in observations]
        few = too_few(observations)
        if few:
            lacking.append(f"{device} with {threads} threads: too few samples of {', '.join(few)}")
    if not fits:
        why = "".join(f"; {sentence}" for sentence in broken_devices(journal))
        raise CalibrationError(f"too little was measured to fit anything{why}; run placer calibrate again")
    noise = {
        "median_spread": statistics.median(spreads),
        "p90_spread": statistics.quantiles(spreads, n=10)[-1],
        "left_out": left_out / (left_out + len(spreads)),
    }
    if SESSIONS.launches:
        noise["lost_kernels"] = SESSIONS.lost_share
    return Profile(
        schema=profile.SCHEMA,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        fingerprint=fingerprint,
        samples=tuple(samples),
        fits=tuple(fits),
        noise=noise,
        warnings=(
            *noise_warnings(noise["median_spread"], noise["left_out"]), *contradicted, *broken_devices(journal),
            *lacking, *infeasible(journal.failures, Counter((o.device, o.family) for o in journal.observations)),
        ),
        complete=not interrupted,
        seconds=sum(journal.seconds.values()),
        unusable={d: reason for d, reason in journal.broken.items() if d not in {fit.device for fit in fits}},
    )  # fmt: skip


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
    return len(journal.of(device, threads)) >= fitting.LEAST_POINTS


def at_one_speed(
    observations: Sequence[StepObservation], readings: Sequence[float]
) -> tuple[list[StepObservation], float]:
    """The steps at the first of ``readings`` (seconds) at which enough of them ran, and that reading.

    All steps, and the median of their readings, where not enough ran at any.
    """
    for usual in readings:
        kept = [o for o in observations if is_alike(o.reading, usual)]
        if len(kept) >= max(LEAST_USUAL * len(observations), fitting.LEAST_POINTS):
            return kept, usual
    return list(observations), statistics.median(o.reading for o in observations)


def noise_warnings(spread: float, left_out: float = 0.0) -> tuple[str, ...]:
    """What to tell of a contended machine, in one line: empty where it was quiet.

    ``spread`` is the inter-quartile spread of repeated steps, ``left_out`` the share of the steps that ran at another
    speed than the machine's usual one.
    """
    very = spread > VERY_NOISY
    seen = []
    if spread > NOISY:
        seen.append(f"repeated steps spread by {spread:.0%} (above {VERY_NOISY if very else NOISY:.0%})")
    if left_out > CONTENDED:
        seen.append(f"{left_out:.0%} of the steps (above {CONTENDED:.0%}) ran at another speed and are left out")
    if not seen:
        return ()
    advice = "predictions are guesses:" if very else "for sharper intervals"
    remedy = "stop other programs and run placer calibrate again"
    return (f"{'very ' * very}noisy: {' and '.join(seen)}; {advice} {remedy}",)
