"""What one run on a machine with an accelerator brings home, in a given time: ``make gpu``.

Every part runs in a process of its own with a time of its own, the most valuable first, and writes what it finds as it
goes. So a part that fails, hangs or breaks the device costs its own results only, and a second run goes on where the
first one stopped. Each cell is visited three times, minutes apart.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import placer
from placer import machine, profile
from placer.calibration.lab.commands import run_limited
from placer.calibration.lab.suite import accelerator_entries, entries
from placer.calibration.measuring.faults import HungError
from placer.calibration.measuring.journal import Journal
from placer.calibration.probing import Target
from placer.calibration.progress import Progress
from placer.calibration.runner import measure_all
from placer.calibration.suite import Entry
from placer.calibration.validation.recorded import JOURNAL, MEASUREMENTS, PACKED, fitted, own_fit, pack
from placer.calibration.validation.run import say, validate
from placer.errors import CalibrationError
from placer.profile import Profile

#: Seconds of a whole run; that starting a process, torch in it and a context takes; and after its time until a part is
#: ended: it is in the middle of a network or a fit.
SECONDS, STARTING, GRACE = 510.0, 5.0, 25.0
#: Packages whose versions are noted.
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "nvidia-ml-py", "transformers", "torch_geometric", "triton")
#: Shares of the calibration's time: of the device and of the CPU.
ON_DEVICE, ON_CPU = 0.68, 0.09
#: The CPU's share of the time of a second or third visit.
CPU_SHARE = 0.25


@dataclass(frozen=True)
class Job:
    """Where to write, which device, until when, and names of networks to run: empty for all."""

    folder: Path
    device: str
    deadline: float
    only: tuple[str, ...] = ()

    @property
    def left(self) -> float:
        return max(self.deadline - time.perf_counter(), 0.0)

    def networks(self, some: Iterable[Entry]) -> list[Entry]:
        """Those that are wanted and can be built here, each once."""
        wanted = {entry.name: entry for entry in some if entry.name in (self.only or [entry.name])}
        return [entry for entry in wanted.values() if not entry.missing()]


def environment(job: Job) -> None:
    """The machine and its software: ``environment.json``."""
    versions = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
    facts = {
        "placer": placer.__version__,
        "python": platform.python_version(),
        "fingerprint": machine.fingerprint(),
        "packages": {name: versions.get(name, "not installed") for name in PACKAGES},
        "torch": {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip},
    }
    text = json.dumps(facts, indent=1, default=str) + "\n"
    profile.replace_file(job.folder / "environment.json", text.encode())


def calibrating(job: Job) -> None:
    """A calibration's raw observations: ``calibration.journal.xz``. What is fitted to them is in placer's folder."""
    facts = machine.fingerprint()
    existing = job.folder / (JOURNAL + PACKED)
    if existing.is_file():
        known = fitted(existing)
        if job.device in known.devices() and not profile.stale_fields(known, facts):
            return
    # The CPU needs less: profiles that are shipped know most of it.
    threads, measuring = torch.get_num_threads(), ON_DEVICE + ON_CPU
    targets = [Target(job.device, threads, ON_DEVICE / measuring), Target("cpu", threads, ON_CPU / measuring)]
    journal = Journal(job.folder / JOURNAL, facts)
    measure_all(targets, measuring * job.left, journal, Progress(), time.perf_counter)
    fitted(pack(journal.path))


def cells_on_device(job: Job) -> None:
    """Networks on the device, predicted and measured: ``measurements.json``."""
    measure_cells(job, ON_THE_DEVICE, job.device)


def cells_on_cpu(job: Job) -> None:
    """Some of them on the CPU."""
    measure_cells(job, ON_THE_CPU, "cpu")


def cells_in_bfloat16(job: Job) -> None:
    """Networks in bfloat16, each beside the same in float32."""
    measure_cells(job, accelerator_entries(), job.device)


def second_visit(job: Job) -> None:
    """The same cells, minutes after they were measured first: a machine that is shared is another one by then."""
    visit_again(job, 1)


def third_visit(job: Job) -> None:
    """The same cells, minutes after the second visit."""
    visit_again(job, 2)


#: The networks that are measured on the CPU, and on the device, the most valuable first.
ON_THE_CPU = [*entries("reference"), *entries("quick")]
ON_THE_DEVICE = [*ON_THE_CPU, *entries("full")]


def visit_again(job: Job, visit: int) -> None:
    """Measure what has been visited so many times once more, on the CPU for at most its share of the time."""
    cpu_end = time.perf_counter() + CPU_SHARE * job.left
    measure_cells(job, ON_THE_CPU, "cpu", visit=visit, deadline=cpu_end)
    measure_cells(job, [*ON_THE_DEVICE, *accelerator_entries()], job.device, visit=visit)


def measure_cells(
    job: Job, some: Iterable[Entry], device: str, *, visit: int = 0, deadline: float | None = None
) -> None:
    """Measure these networks on a visit until the time is used, predicted before the first; what is known is kept."""
    validate(
        job.networks(some),
        own_profile(job),
        (device,),
        progress=say,
        output=job.folder / MEASUREMENTS,
        rounds=3,
        time_limit_per_cell=0.2,
        visits=visit + 1,
        first_visit=visit,
        deadline=job.deadline if deadline is None else deadline,
    )


def own_profile(job: Job) -> Profile:
    """What was calibrated, or else a shipped profile: a record is predicted anew when it is replayed."""
    try:
        known = own_fit(job.folder)
    except CalibrationError as error:
        say(f"not calibrated ({error}): predictions are of another machine")
        known = None
    return profile.load(profile.shipped()[0]) if known is None else known


#: The most valuable first, and the share of the time of each.
PARTS: dict[Callable[[Job], None], float] = {
    environment: 20.0, calibrating: 165.0, cells_on_device: 100.0, cells_on_cpu: 30.0, cells_in_bfloat16: 30.0,
    second_visit: 70.0, third_visit: 70.0,
}  # fmt: skip


def run_parts(job: Job, parts: Mapping[Callable[[Job], None], float] = PARTS) -> bool:
    """Run them in order; what one did not use of its time is shared among those that come.

    Returns whether each ended in order; ``run.jsonl`` says how each ended.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    good, coming = True, list(parts)
    while coming:
        whole = sum(parts[part] for part in coming)
        seconds = (job.left - STARTING * len(coming)) * parts[coming[0]] / whole
        part = coming.pop(0)
        say(f"--- {part.__name__}, {seconds:.0f} s: {part.__doc__}")
        begun = time.perf_counter()
        error = run_part(part.__name__, job, seconds) if seconds > 0 else "no time was left"
        took = time.perf_counter() - begun
        ended: dict[str, object] = {"of": {"part": part.__name__}, "seconds": took}
        if error is not None:
            say(f"{part.__name__} did not end in order: {error}")
            ended = {"of": {"part": part.__name__}, "error": f"after {took:.0f} s: {error}"}
            good = False
        with (job.folder / "run.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(ended) + "\n")
    return good


def run_part(name: str, job: Job, seconds: float) -> str | None:
    """Run one part in a process of its own; None where it ended in order, else what went wrong."""
    command = [sys.executable, "-W", "default", __file__, "--part", name, "--folder", str(job.folder)]
    command += ["--device", job.device, "--seconds", f"{seconds:.2f}"]
    for network in job.only:
        command += ["--only", network]
    limit = min(STARTING + seconds + GRACE, job.left)
    try:
        run_limited(command, seconds=limit, log=job.folder / f"{name}.log")
    except HungError:
        return f"it was ended after {limit:.0f} s"
    except CalibrationError as error:
        return str(error)
    return None


def folder_name(device: str) -> str:
    """The name of a machine's folder: its accelerator and its number of cores."""
    name = next(str(a.get("name", device)) for a in machine.fingerprint()["accelerators"] if a["device"] == device)
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{machine.usable_cores()}-core"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns 0 where every part ended in order and in time, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("calibration/records"), help="where records are kept")
    parser.add_argument("--device", help="an accelerator; the first one without this")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--only", action="append", default=[], metavar="NETWORK", help="run these networks only")
    parser.add_argument("--part", choices=[part.__name__ for part in PARTS], help="this one alone, in this process")
    options = parser.parse_args(arguments)
    end, only = time.perf_counter() + options.seconds, tuple(options.only)
    if options.part:
        work = next(part for part in PARTS if part.__name__ == options.part)
        work(Job(options.folder, options.device, end, only))
        return 0
    found = machine.accelerators()
    device = options.device or next(iter(found), "")
    if device not in found:
        there = f"there is no {device} here: there is {', '.join(found)}"
        print(there if found else "torch sees no accelerator here", file=sys.stderr)
        return 1
    # Left as after an error, so that the running part is ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    job = Job(options.folder.absolute() / folder_name(device), device, end, only)
    good = run_parts(job)
    print(job.folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
