"""Records everything worth knowing of one machine: ``python -m placer.calibration.collect``, run by ``make gpu``.

One folder per machine holds its environment, its profile, what a first context and a call of ``choose`` cost, and the
validation suite measured on every device. Each part is written as soon as it is known, and skipped if it is there
already: a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import placer
from placer import machine, profile
from placer.calibration.measuring.watchdog import run_limited
from placer.calibration.runner import calibrate
from placer.calibration.suite import Entry, entries
from placer.calibration.validation import run as validation
from placer.errors import CalibrationError
from placer.profile import replace_file

#: Seconds a whole collection may take, and the share of it for calibration.
SECONDS = 500.0
CALIBRATION_SHARE = 0.15
#: Least seconds of a calibration: fewer measure nothing.
LEAST_CALIBRATION = 5.0
#: Real seconds a process may take to touch an accelerator for the first time.
CONTEXT_SECONDS = 120.0
#: Networks whose cold and repeated ``choose`` are timed.
TIMED = ("mlp_tabular", "resnet50", "bert_base", "gpt2_small", "lstm_2_layers_50_steps")
#: Times the first touch of an accelerator, in a process that has done nothing else.
_CONTEXT = """
import sys, time, torch
start = time.perf_counter()
torch.ones(1, device=sys.argv[1])
torch.accelerator.synchronize(sys.argv[1])
print(time.perf_counter() - start)
"""
PACKAGES = ("torch", "numpy", "transformers", "torch_geometric", "pytorch-tabnet", "torchdiffeq")


def folder_name() -> str:
    """The name of this machine's folder: its first accelerator, or its CPU's instructions, and its number of cores."""
    facts = machine.fingerprint()
    found = facts["accelerators"]
    name = str(found[0].get("name", "accelerator")) if found else f"cpu-{facts['cpu_instructions']}"
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{machine.usable_cores()}-core"


def collect(
    folder: Path,
    *,
    devices: Sequence[str],
    networks: Sequence[Entry],
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> None:
    """Fill ``folder`` within about ``seconds``; what is there already is kept. ``say`` is told each stage.

    Raises the errors of calibration and validation, and ValueError for a device that this machine does not have.
    """
    deadline = time.perf_counter() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "environment.json", environment(devices))
    say("calibrating")
    budget = max(CALIBRATION_SHARE * seconds, LEAST_CALIBRATION)
    calibrate(budget=budget, devices=devices, path=folder / "profile.json", progress=False)
    # As it was written: a later run finds it under the same name, and keeps the predictions made with it.
    known = profile.load(folder / "profile.json")
    costs = folder / "choose_cost.json"
    if not costs.exists():
        say("timing choose()")
        _write(costs, choose_cost([n for n in networks if n.name in TIMED], folder / "profile.json"))
    say("validating")
    validation.validate(
        networks, known, devices, progress=say, output=folder / "measurements.json", deadline=deadline,
        time_limit_per_cell=0.8,
    )  # fmt: skip


def environment(devices: Sequence[str]) -> dict[str, Any]:
    """The machine and its software, and the seconds each accelerator's context takes to create."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    contexts: dict[str, float] = {}
    failures: dict[str, str] = {}
    for device in devices:
        if device != "cpu":
            try:
                contexts[device] = float(run_limited([sys.executable, "-c", _CONTEXT, device], seconds=CONTEXT_SECONDS))
            except CalibrationError as error:  # a device that hangs costs this number, not the collection
                failures[device] = str(error)
    return {
        "placer": placer.__version__,
        "python": platform.python_version(),
        "packages": versions,
        "fingerprint": machine.fingerprint(),
        "context_seconds": contexts,
        "context_failures": failures,
    }


def choose_cost(networks: Sequence[Entry], source: Path) -> dict[str, Any]:
    """Seconds of a first and of a repeated ``choose``, by network, without moving anything."""
    result = {}
    for entry in networks:
        if entry.missing():
            continue
        model, example = entry.build(), entry.example(entry.batches[0])

        def once(model: Any = model, example: Any = example) -> float:
            start = time.perf_counter()
            placer.choose(model, example=example, mode="train", profile=source, move=False)
            return time.perf_counter() - start

        first = once()
        result[entry.name] = {"first_seconds": first, "repeated_seconds": statistics.median(once() for _ in range(50))}
    return result


def _write(path: Path, value: Any) -> None:
    replace_file(path, json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m placer.calibration.collect", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("calibration/records"), help="where records are kept")
    parser.add_argument("--device", action="append", help="this device only; may be repeated")
    parser.add_argument("--suite", choices=("quick", "reference", "full"), default="full")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    options = parser.parse_args(arguments)
    devices = tuple(options.device or machine.available_devices())
    folder = options.folder / folder_name()
    collect(
        folder, devices=devices, networks=entries(options.suite), seconds=options.seconds,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    found = profile.load(folder / "profile.json")
    print(f"{folder}: calibrated {', '.join(found.devices())}; {'complete' if found.complete else 'not complete'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
