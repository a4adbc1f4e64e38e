"""``placer run`` beside an independent timer, on scripts of the kind that people write and publish.

    python -m placer.calibration.lab.validators.scripts [--rounds N] [--profile NAME] [--output FILE] [NAME...]

Each of ``calibration/lab/scripts`` runs three times a round, in processes of their own: under the timer
(``timed_script.py``), under ``placer run``, and under both, which tells what watching costs. That takes some twenty
minutes. A script whose packages are not installed is skipped.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any

from placer.calibration.lab.commands import run_limited
from placer.calibration.lab.validators import timed_script
from placer.calibration.lab.validators.rows import report
from placer.calibration.measuring.faults import HungError
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.errors import CalibrationError
from placer.profile import profiles_folder
from placer.units import format_seconds

FOLDER = Path(__file__).resolve().parent.parent / "scripts"
#: A script and its arguments, by a name.
SCRIPTS = {
    "mnist": ("mnist.py",),
    "word language model": ("word_language_model.py",),
    "tabular": ("tabular.py",),
    "DCGAN": ("dcgan.py",),
    "images": ("image_classification.py",),
    "images, 2 workers": ("image_classification.py", "--workers", "2"),
    "Lightning autoencoder": ("lightning_autoencoder.py",),
    "Trainer, tiny BERT": ("trainer_bert.py",),
    "graph classification": ("graph_classification.py",),
    "PPO on CartPole": ("ppo_cartpole.py",),
}
#: Seconds after which a run is ended: many times what it takes on two cores.
LIMIT = 900.0
COLUMNS = (
    "script", "of", "predicted", "90 % interval", "inside", "measured by placer", "by the timer",
    "predicted / measured", "loader's share by placer", "by the timer", "points apart", "a step when watched",
)  # fmt: skip


@dataclass(frozen=True)
class Times:
    """What the timer wrote of one run of a script."""

    epochs: Sequence[Mapping[str, float]]
    gaps: Sequence[float]

    @property
    def warm(self) -> Sequence[Mapping[str, float]]:
        """The epochs without the first one, if there are others."""
        return self.epochs[1:] or self.epochs

    def seconds(self, unit: str, batches: int) -> float:
        """Seconds of an epoch, or of ``batches`` steps where the script has no loader."""
        if unit == "epoch":
            return median(epoch["seconds"] for epoch in self.warm)
        return batches * fmean(self.gaps)

    @property
    def loader_share(self) -> float | None:
        """The share of its epochs in which a script waited for batches; None without a loader."""
        if not self.epochs:
            return None
        return sum(epoch["waiting"] for epoch in self.warm) / sum(epoch["seconds"] for epoch in self.warm)


@dataclass(frozen=True)
class Round:
    """One script once: what ``placer run`` told of the ``run``, and the timer without placer and beside it."""

    run: Mapping[str, Any]
    alone: Times
    watched: Times

    @property
    def predicted(self) -> tuple[float, float, float]:
        """Seconds on the device it ran on, and the interval."""
        home = self.run["devices"][self.run["home"]]
        return home["seconds"], home["low"], home["high"]

    @property
    def measured(self) -> float:
        return self.alone.seconds(self.run["unit"], self.run["batches"])

    @property
    def cost(self) -> float:
        """What a step takes when watched, relative to what it takes else."""
        return median(self.watched.gaps) / median(self.alone.gaps)


@dataclass(frozen=True)
class ScriptRow:
    """A script and its rounds; of every figure the median counts."""

    name: str
    rounds: Sequence[Round]

    @property
    def predicted(self) -> tuple[float, float, float]:
        """Seconds on the device it ran on, and the interval."""
        seconds = median(one.predicted[0] for one in self.rounds)
        return seconds, median(one.predicted[1] for one in self.rounds), median(one.predicted[2] for one in self.rounds)

    @property
    def measured(self) -> float:
        return median(one.measured for one in self.rounds)

    @property
    def inside(self) -> bool:
        return self.predicted[1] <= self.measured <= self.predicted[2]

    def cells(self) -> tuple[str, ...]:
        """The script under ``COLUMNS``."""
        first = self.rounds[0].run
        amount = f"an epoch of {first['batches']:,}" if first["unit"] == "epoch" else f"{first['batches']:,} steps"
        predicted, low, high = self.predicted
        by_placer = _median_of_known(one.run["measured_seconds"] for one in self.rounds)
        placers_share = _median_of_known(one.run["loader_share"] for one in self.rounds)
        share = _median_of_known(one.alone.loader_share for one in self.rounds)
        apart = "-" if placers_share is None or share is None else f"{100 * (placers_share - share):+.1f}"
        return (
            self.name,
            amount,
            format_seconds(predicted),
            f"{format_seconds(low)} to {format_seconds(high)}",
            "yes" if self.inside else "no",
            "-" if by_placer is None else format_seconds(by_placer),
            format_seconds(self.measured),
            f"{predicted / self.measured:.2f}",
            _percent(placers_share),
            _percent(share),
            apart,
            f"{median(one.cost for one in self.rounds):.3f}x",
        )


@dataclass(frozen=True)
class NotPredicted:
    """A script that did not end well, or of whose run nothing was predicted."""

    name: str
    reason: str
    inside = False

    def cells(self) -> tuple[str, ...]:
        """The script under ``COLUMNS``."""
        return self.name, self.reason, *["-"] * (len(COLUMNS) - 2)


def _median_of_known(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def missing(script: Path) -> list[str]:
    """The packages that a script imports and that are not installed. The script does not run."""
    packages: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            packages.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages.add(node.module.partition(".")[0])
    return sorted(package for package in packages if find_spec(package) is None)


def measure(names: Sequence[str], rounds: int, profile: str | None) -> Iterator[ScriptRow | NotPredicted]:
    """Each script, ``rounds`` times. What is skipped is said, with the reason."""
    for name in names:
        script = FOLDER / SCRIPTS[name][0]
        if packages := missing(script):
            say(f"{name}: skipped: {', '.join(packages)} not installed")
            continue
        try:
            yield ScriptRow(name, [run_round(name, script, SCRIPTS[name][1:], profile) for _ in range(rounds)])
        except (CalibrationError, HungError) as error:
            yield NotPredicted(name, str(error))


def run_round(name: str, script: Path, arguments: Sequence[str], profile: str | None) -> Round:
    """One script under the timer, under ``placer run``, and under both.

    Raises HungError and CalibrationError where one of them does not end well, or nothing was predicted of the run.
    """
    timer, answer = [timed_script.__file__, "times.json", str(script), *arguments], "answer.json"
    options = ["--profile", profile] if profile else []
    placer = ["-m", "placer", "run", "--json", "--output", answer, *options]
    say(f"{name}: timed")
    alone = Times(**_written([*timer], "times.json"))
    say(f"{name}: under placer run")
    told = _written([*placer, str(script), *arguments], answer)
    run = told["run"]
    if run is None or run["home"] not in run["devices"]:
        reasons = [f"{model['name']}: {model.get('not_predicted', 'predicted')}" for model in told["models"]]
        raise CalibrationError(f"the run is not predicted ({'; '.join(reasons)})")
    say(f"{name}: under placer run, timed")
    return Round(run, alone, Times(**_written([*placer, *timer], "times.json")))


def _written(command: Sequence[str], file: str) -> dict[str, Any]:
    """What a Python process writes to a file, in a folder of its own and without a history of earlier runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        if profiles_folder().is_dir():
            shutil.copytree(profiles_folder(), home / "profiles")
        environment = {**os.environ, "PLACER_HOME": str(home), "PLACER_QUIET": "1"}
        run_limited([sys.executable, *command], seconds=LIMIT, folder=folder, environment=environment)
        written: dict[str, Any] = json.loads((folder / file).read_text(encoding="utf-8"))
        return written


def validate_scripts(names: Sequence[str], rounds: int, profile: str | None, output: Path | None) -> int:
    """Run the scripts and print the table; ``output`` gets it as Markdown. The exit code is 1 if all are skipped."""
    rows = list(measure(names, rounds, profile))
    table = Table("placer run", COLUMNS, tuple(row.cells() for row in rows))
    return report(rows, [table, "", f"{sum(row.inside for row in rows)} of {len(rows)} inside"], output, (0, 1))


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--profile")
    parser.add_argument("--output", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {'; '.join(SCRIPTS)}")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in SCRIPTS]:
        parser.error(f"no script {unknown[0]!r}")
    return validate_scripts(chosen.names or list(SCRIPTS), chosen.rounds, chosen.profile, chosen.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
