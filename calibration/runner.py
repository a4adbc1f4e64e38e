"""The calibrate step: measure under a budget, keep what is done whatever happens, fit, save."""

from __future__ import annotations

import datetime as dt
import statistics
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch

from placer import machine, profile
from placer.calibration.fitting import device as fitting
from placer.calibration.fitting.accelerator import fit_accelerator
from placer.calibration.fitting.references import expectation, pace_of_kind, references
from placer.calibration.measuring.alone import alone
from placer.calibration.measuring.attempts import attempt
from placer.calibration.measuring.bench import Bench
from placer.calibration.measuring.interference import Load
from placer.calibration.measuring.journal import Journal, infeasible
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.rates import counted_again, measure_rates
from placer.calibration.measuring.speed_probe import USUAL_READING, SpeedProbe, is_alike, pacing_cores, usual_reading
from placer.calibration.measuring.timing import Clock, clock_resolution
from placer.calibration.plan import SHORT, Planner, too_few
from placer.calibration.progress import Progress, silent
from placer.decision import running_with
from placer.errors import CalibrationError, ProfileError
from placer.machine import malloc
from placer.pricing import foreign_family
from placer.profile import DeviceFit, Profile, Sample

#: Seconds of a default and of a quick calibration, fitting included.
DEFAULT_BUDGET = 60.0
QUICK_BUDGET = 6.0
#: Share of the budget kept for fitting.
FIT_SHARE = 0.2
#: What another number of threads than the process has is worth, in times of that.
OTHER_THREADS = 0.3
#: Share of a device's time for the data-sheet rates.
RATES_SHARE = 0.08
#: Times of its share that a device may take on a slow or busy machine until there is anything to fit.
OVERTIME = 4.0
#: Longest step of a probe, as a share of a device's time: a dozen of them are timed.
LONGEST_STEP = 0.0012
#: Longest step of most probes, and of a few where the budget is long: seconds, and the latter's share of the time.
USUAL_LONGEST, LONGEST, LONGEST_SHARE = 0.05, 0.3, 0.0003
#: Samples kept in the profile per family, device and number of threads.
KEPT_SAMPLES = 400
#: Share of probes that may be thrown away because other programs kept the cores busy meanwhile.
MOST_DISTURBED = 0.5
#: Share of the steps that must have been taken at the machine's usual pace for them alone to be learnt from.
LEAST_USUAL = 0.15
#: Above these inter-quartile spreads a machine is called noisy, and very noisy.
NOISY, VERY_NOISY = 0.12, 0.30


@dataclass(frozen=True)
class Target:
    """A device at a number of CPU threads, and its share of the budget."""

    device: str
    threads: int
    share: float


def calibrate(
    *,
    budget: float = DEFAULT_BUDGET,
    devices: Sequence[str] | None = None,
    progress: bool | Progress = True,
    path: str | PathLike[str] | None = None,
    quick: bool = False,
    unaided: bool = False,
    clock: Clock = time.perf_counter,
) -> Profile:
    """Measure this machine for about ``budget`` seconds, fit the cost model and save the profile.

    An interrupted run (Ctrl-C, a crash) is resumed: what it measured counts. A complete profile of this very machine
    and budget is returned as it is. ``devices`` None takes the CPU and every accelerator found. The shipped profile of
    a similar machine is built upon, unless this one is to be learnt ``unaided``. ``clock`` is what an accelerator is
    timed with and the budget is spent on.

    Raises ValueError for a budget or device that cannot be, CalibrationError when nothing could be measured.
    """
    if not budget > 0:
        raise ValueError(f"budget must be a number of seconds above 0, not {budget!r}")
    wanted = _checked_devices(devices)
    budget = min(budget, QUICK_BUDGET) if quick else budget
    target_path = Path(path) if path is not None else profile.default_path()
    shown = progress if isinstance(progress, Progress) else (Progress.on_terminal() if progress else silent())
    fingerprint = machine.fingerprint()
    existing = _finished(target_path, fingerprint, wanted, budget)
    if existing is not None:
        shown.note(f"already calibrated ({existing.created}, {existing.seconds:.0f} s): nothing left to measure")
        return existing
    with alone(target_path):
        return _calibrate(target_path, fingerprint, targets(wanted, quick), budget, shown, clock, unaided)


def _calibrate(
    target_path: Path, fingerprint: dict[str, object], targets: Sequence[Target], budget: float, shown: Progress,
    clock: Clock, unaided: bool,
) -> Profile:  # fmt: skip
    journal = Journal(target_path.with_suffix(".journal"), fingerprint)
    interrupted = False
    if journal.put_aside is not None:
        shown.note(f"an interrupted calibration with other settings is kept in {journal.put_aside}")
    with shown:
        try:
            for target in targets:
                measure(target, budget * (1 - FIT_SHARE) * target.share, journal, shown, clock)
        except KeyboardInterrupt:
            interrupted = True
            shown.note("interrupted: what was measured is kept; run placer calibrate again to go on")
        if not journal.observations:
            raise CalibrationError("nothing was measured; run placer calibrate again")
        shown.stage("fitting")
        result = build(journal, fingerprint, interrupted, unaided)
    profile.save(result, target_path)
    shown.note(f"profile written to {target_path}")
    if not interrupted:
        journal.close()
    return result


def _checked_devices(devices: Sequence[str] | None) -> tuple[str, ...]:
    found = machine.available_devices()
    if devices is None:
        return found
    unknown = [d for d in devices if d not in found]
    if unknown or not devices:
        raise ValueError(
            f"devices must be among {', '.join(found)} on this machine, not {', '.join(unknown) or 'empty'}"
        )
    return tuple(dict.fromkeys(devices))


def _finished(path: Path, fingerprint: dict[str, object], devices: Sequence[str], budget: float) -> Profile | None:
    """The profile at ``path`` when it is this machine's, complete and at least as thorough as asked for."""
    try:
        found = profile.load(path)
    except ProfileError:
        return None
    current = all(foreign_family(fit) is None for fit in found.fits)
    same = current and not profile.stale_fields(found, fingerprint)
    covers = set(devices) <= set(found.devices())
    # What was asked for last time was spent up to the last probe: a few percent less is the same budget.
    thorough = found.seconds >= 0.9 * budget * (1 - FIT_SHARE)
    return found if same and covers and thorough and found.complete else None


def targets(devices: Sequence[str], quick: bool) -> list[Target]:
    """Every device at this process's number of threads; the CPU also at one and, on large machines, in between."""
    threads = torch.get_num_threads()
    others = sorted({1, max(threads // 4, 1)} - {threads}) if not quick else []
    shares: list[tuple[str, int, float]] = []
    for device in devices:
        shares.append((device, threads, 1.0))
        if device == "cpu":
            shares += [(device, count, OTHER_THREADS) for count in others]
    total = sum(share for _, _, share in shares)
    return [Target(device, count, share / total) for device, count, share in shares]


def measure(
    target: Target, seconds: float, journal: Journal, shown: Progress, clock: Clock, *, usual: float | None = None,
    drawn: int = 0,
) -> None:  # fmt: skip
    """Measure one target until ``seconds`` of it, what an earlier run spent included, are used up.

    ``usual``: seconds of the reading to wait for and to keep to; None is that of the machine's usual pace. ``drawn``:
    journals before this one, whose probes need not be drawn again.
    """
    key = (target.device, target.threads)
    label = target.device if target.device != "cpu" else f"cpu, {target.threads} thread{'s' * (target.threads > 1)}"

    def run() -> None:
        malloc.settle()  # probes of all sizes would do it in time; before, the same op would cost more than after
        shown.start(label, seconds, done=journal.seconds.get(key, 0.0))
        if key not in journal.rates:
            shown.stage(f"{label}: rates")
            start = clock()
            rates, _ = measure_rates(target.device, seconds=seconds * RATES_SHARE, clock=clock)
            journal.add_rates(*key, rates, clock() - start)
        clock_resolution(clock, ticks=1)  # a clock that stands still would never spend the budget
        # Another seed than an earlier run's: what was drawn then need not be drawn again.
        seed = zlib.crc32(f"{target.device} {target.threads} {journal.attempts(*key) + drawn}".encode())
        mostly = min(LONGEST_STEP * seconds, USUAL_LONGEST)
        rarely = max(min(LONGEST_SHARE * seconds, LONGEST), mostly)
        short = SHORT if target.device == "cpu" else 0.0
        planner = Planner(journal.rates[key], seed=seed, longest_step=mostly, rarely=rarely, short=short)
        cores = pacing_cores(target.device, target.threads)
        speed_probe = SpeedProbe(cores, usual=usual) if clock is time.perf_counter else None
        bench = Bench(target.device, target.threads, rates=journal.rates[key], clock=clock, speed_probe=speed_probe)
        disturbed = 0
        while (spent := journal.seconds.get(key, 0.0)) < seconds * (1.0 if _enough(journal, *key) else OVERTIME):
            probe = planner.next()
            shown.update(spent, probe.name)
            start, before = clock(), Load.now()
            # The whole step of a network is a sample of its own; of a block it only tells how noisy the ops are.
            share = 1.0 if probe.family == "network" else 0.2
            observation = attempt(bench, probe, seconds=share * min(0.06, 0.004 * seconds), journal=journal)
            took = clock() - start
            if observation is not None and clock is time.perf_counter and Load.now().disturbed_since(before):
                disturbed += 1
                # On a machine that is never idle, doubtful samples are better than none.
                calm = disturbed < MOST_DISTURBED * len(journal.observations)
                observation = None if calm else replace(observation, spread=max(observation.spread, 1.0))
            planner.learn(probe.family, observation, took)
            if observation is None:
                journal.seconds[key] = spent + took
            else:
                journal.add(observation, took)
        if target.device == "cpu":
            start = clock()
            rates = counted_again(journal.rates[key], seconds=seconds * RATES_SHARE, clock=clock)
            journal.add_rates(*key, rates, clock() - start)

    with running_with(target.threads):
        run()


def _enough(journal: Journal, device: str, threads: int) -> bool:
    """Whether there is anything to fit: all that was spent on a device is lost where there is not."""
    return len(journal.of(device, threads)) >= fitting.LEAST_POINTS


def build(journal: Journal, fingerprint: dict[str, object], interrupted: bool, unaided: bool) -> Profile:
    """The profile of what ``journal`` holds; raises CalibrationError where that is too little."""
    fits: list[DeviceFit] = []
    samples: list[Sample] = []
    spreads: list[float] = []
    lacking: list[str] = []
    tuned = fitting.Tuned()
    known = () if unaided else references()
    left_out = 0
    for (device, threads), rates in journal.rates.items():
        measured = journal.of(device, threads)
        if not _enough(journal, device, threads):
            lacking.append(f"{device} with {threads} threads was hardly measured")
            continue
        usual = usual_reading(o.reading for o in measured)
        of_kind = None if usual is None else pace_of_kind(known, device, threads, fingerprint, usual)
        observations, reading = at_one_pace(measured, [pace for pace in (of_kind, usual) if pace is not None])
        left_out += len(measured) - len(observations)
        if reading > 0.0:
            rates = {**rates, USUAL_READING: reading}
        expected = expectation(known, device, threads, fingerprint, reading)
        if device == "cpu":
            fits.append(
                fitting.fit_device(observations, rates, device=device, threads=threads, tuned=tuned, expected=expected)
            )
        else:
            host = next((fit.framework for fit in fits if (fit.device, fit.threads) == ("cpu", threads)), None)
            fits.append(
                fit_accelerator(observations, rates, device=device, threads=threads, expected=expected, host=host)
            )
        samples += fitting.samples(observations, most=KEPT_SAMPLES)
        spreads += [o.spread for o in observations]
        few = too_few(observations)
        if few:
            lacking.append(f"{device} with {threads} threads: too few samples of {', '.join(few)}")
    if not fits:
        raise CalibrationError("too little was measured to fit anything; run placer calibrate again")
    noise = {
        "median_spread": statistics.median(spreads),
        "p90_spread": statistics.quantiles(spreads, n=10)[-1],
        "left_out": left_out / (left_out + len(spreads)),
    }
    return Profile(
        schema=profile.SCHEMA,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        fingerprint=fingerprint,
        samples=tuple(samples),
        fits=tuple(fits),
        noise=noise,
        warnings=(*_noise_warnings(noise["median_spread"]), *lacking, *infeasible(journal.failures)),
        complete=not interrupted,
        seconds=sum(journal.seconds.values()),
    )


def at_one_pace(observations: Sequence[StepObservation], paces: Sequence[float]) -> tuple[list[StepObservation], float]:
    """Those taken at the first of ``paces`` (readings in seconds) that the machine had for long enough, and that reading.

    All of them, and the median of their readings, where it had none of them for long.
    """
    for usual in paces:
        kept = [o for o in observations if is_alike(o.reading, usual)]
        if len(kept) >= max(LEAST_USUAL * len(observations), fitting.LEAST_POINTS):
            return kept, usual
    return list(observations), statistics.median(o.reading for o in observations)


def _noise_warnings(spread: float) -> tuple[str, ...]:
    seen = f"repeated steps spread by {spread:.0%}"
    if spread > VERY_NOISY:
        advice = "predictions are guesses: stop other programs and run placer calibrate again"
        return (f"very noisy: {seen} (above {VERY_NOISY:.0%}); {advice}",)
    if spread > NOISY:
        return (f"noisy: {seen} (above {NOISY:.0%}); for sharper intervals run placer calibrate when idle",)
    return ()
