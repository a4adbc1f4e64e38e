"""The calibrate step: measures under a budget, keeps what is done whatever happens, fits, and saves the profile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from placer import machine, profile
from placer.calibration.build import broken_devices, build
from placer.calibration.measuring.faults import (
    DEVICE_ERRORS,
    BrokenDeviceError,
    cause,
    check_writable,
    locked,
    release,
)
from placer.calibration.measuring.journal import Journal, journal_file
from placer.calibration.measuring.recording import KernelRecorder
from placer.calibration.measuring.timing import Clock
from placer.calibration.probing import RATES_SHARE, Target, measure, one_of_each, shared_out, start, targets
from placer.calibration.progress import Progress
from placer.errors import CalibrationError, ProfileError
from placer.pricing import is_current
from placer.profile import Profile
from placer.workload import check_devices_here

#: Seconds of a default and of a quick calibration, fitting included.
DEFAULT_BUDGET = 60.0
QUICK_BUDGET = 6.0
#: Share of the budget kept for fitting.
FIT_SHARE = 0.2


def calibrate(
    *,
    budget: float = DEFAULT_BUDGET,
    devices: Sequence[str] | None = None,
    progress: bool | Progress = True,
    path: str | PathLike[str] | None = None,
    quick: bool = False,
    clock: Clock = time.perf_counter,
) -> Profile:
    """Measure this machine for about ``budget`` seconds, fit the cost model and save the profile.

    An interrupted run (Ctrl-C, a crash) is resumed: what it measured counts. A complete profile of this very machine
    and budget is returned as it is, unless other programs were in its way. ``devices`` None takes the CPU and every
    accelerator found; of accelerators that are equal in name and memory the first one is measured. One that cannot be
    used is left out, with the reason in the profile. What is known of similar machines is built upon. ``clock`` times
    the accelerators and the budget.

    Raises ValueError for an impossible budget or device, CalibrationError where nothing could be measured, ProfileError
    where the file that ``path`` names is no profile.
    """
    if not budget > 0:
        raise ValueError(f"budget must be a number of seconds above 0, not {budget!r}")
    wanted = check_devices_here(devices, None) or machine.available_devices()
    budget = min(budget, QUICK_BUDGET) if quick else budget
    target_path = Path(path) if path is not None else profile.default_path()
    shown = progress if isinstance(progress, Progress) else (Progress.on_terminal() if progress else Progress())
    fingerprint = machine.fingerprint()
    wanted = one_of_each(wanted, fingerprint["accelerators"])
    planned = targets(wanted, quick)
    profile.check_target(target_path)
    existing = finished(target_path, fingerprint, wanted, budget * (1 - FIT_SHARE))
    if existing is not None:
        shown.note(f"already calibrated ({existing.created}, {existing.seconds:.0f} s): nothing left to measure")
        return existing
    check_writable(target_path)
    with locked(target_path):
        journal = Journal(journal_file(target_path, fingerprint), fingerprint)
        interrupted = False
        with shown.showing():
            shown.begin(budget)
            began = machine.moment()
            try:
                measure_all(planned, budget * (1 - FIT_SHARE), journal, shown, clock)
            except KeyboardInterrupt:
                interrupted = True
                shown.note("interrupted: what was measured is kept; run placer calibrate again to go on")
            ended = machine.moment()
            journal.add_others(machine.others_share(began, ended), ended.wall - began.wall)
            if not journal.observations:
                why = "".join(f"; {sentence}" for sentence in broken_devices(journal))
                raise CalibrationError(f"nothing was measured{why}; run placer calibrate again")
            if fingerprint["accelerators"]:  # a context tells which of the driver's devices is which of torch's
                fingerprint = {**fingerprint, "accelerators": machine.describe_accelerators()}
            shown.finish("fitting the cost model", budget * FIT_SHARE)
            result = build(journal, fingerprint, interrupted)
        profile.save(result, target_path)
        shown.note(f"profile written to {target_path}")
        if not interrupted:
            journal.close()
        return result


def measure_all(
    wanted: Sequence[Target],
    seconds: float,
    journal: Journal,
    shown: Progress,
    clock: Clock,
) -> None:
    """Start the accelerators, then measure every target that works, in ``seconds`` for all together."""
    recorders: dict[tuple[str, int], KernelRecorder | None] = {}
    for target in wanted:
        if target.device != "cpu":
            shown.start(f"starting {target.label}", seconds * target.share * RATES_SHARE)
            journal.broken.pop(target.device, None)  # in another process it may work again
            with _survived(target, journal, shown):
                recorders[target.key] = start(target, seconds * target.share, journal, shown, clock)
    for target in shared_out([t for t in wanted if t.device == "cpu" or t.key in recorders]):
        with _survived(target, journal, shown):
            measure(
                target,
                seconds * target.share,
                journal,
                shown,
                clock,
                recorder=recorders.get(target.key),
            )


@contextmanager
def _survived(target: Target, journal: Journal, shown: Progress) -> Iterator[None]:
    """Note the reason why an accelerator fails in the body, and go on after it; give its memory back.

    The CPU's errors go through, and those that every other target would meet too.
    """
    try:
        yield
    except (*DEVICE_ERRORS, BrokenDeviceError) as error:
        if target.device == "cpu":
            raise
        journal.add_broken(target.device, cause(error))
        for sentence in broken_devices(journal, target.device):
            shown.note(sentence)
    finally:
        release(target.device)


def finished(path: Path, fingerprint: dict[str, object], devices: Sequence[str], seconds: float) -> Profile | None:
    """The profile at ``path`` if it is this machine's, complete, undisturbed and measured for at least ``seconds``."""
    try:
        found = profile.load(path)
    except ProfileError:
        return None
    current = all(map(is_current, found.fits))
    same = current and not profile.stale_fields(found, fingerprint)
    covers = set(devices) <= set(found.devices())
    # A budget up to a tenth larger than that of the last run counts as the same.
    thorough = found.seconds >= 0.9 * seconds
    return found if same and covers and thorough and found.complete and not found.disturbed else None
