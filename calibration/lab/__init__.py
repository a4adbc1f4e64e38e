"""What measures placer itself, and what is learnt of machines that others measured: in a checkout, not in the wheel.

``suite`` has all networks, ``validators`` hold predictions against whatever was measured, ``published`` fits what comes
with placer. Here are the options that ``placer validate`` has in a checkout beside those of the wheel.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from placer.files import check_free

__all__ = ["OPTIONS", "validate"]

OPTIONS: list[click.Parameter] = [
    click.Option(
        ["--estimate"],
        is_flag=True,
        help="Predict as before a calibration, from another class of CPU; --profile tells how fast this one is.",
    ),
    click.Option(
        ["--published"],
        is_flag=True,
        help="Compare with published steps on GPUs of the catalog; --profile names the host.",
    ),
    click.Option(
        ["--problems"],
        is_flag=True,
        help="Compare with KernelBench's published problems, a few ops each; --profile names the host.",
    ),
    click.Option(
        ["--steps"], type=click.IntRange(min=1), metavar="N", help="Published steps to compare.  [default: 600]"
    ),
    click.Option(
        ["--compiled"], is_flag=True, help="Compare the published steps of compiled networks with the same eager."
    ),
    click.Option(
        ["--what-if"],
        multiple=True,
        is_flag=False,
        flag_value="",
        metavar="[GPU]",
        help="Predict the reference systems on a GPU of the catalog, too. May be repeated.  [without a name: "
        "on the accounts' own hardware, and on a Tesla T4]",
    ),
    click.Option(
        ["--accounts"],
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Compare with published accounts of CPU and GPU; nothing is run.",
    ),
    click.Option(
        ["--machines"],
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="Compare with published times of ops and steps on CPUs of many cores and Apple's chips; nothing is run.",
    ),
    click.Option(
        ["--jobs"], is_flag=True, help="Run jobs of several parts instead of single steps: fits of real libraries."
    ),
]
#: Options of a suite, which the other questions do not take.
_OF_SUITES = ("suite", "against", "threads", "estimate", "what_if", "share")
_SUITES: tuple[str, str, tuple[str, ...]] = ("suites", "validate_suites", (*_OF_SUITES, "profile", "output"))
#: The other questions: the module and the function that answers each, and the options that it takes.
_QUESTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "accounts": ("accounts", "validate_accounts", ("accounts", "output")),
    "machines": ("machines", "validate_machines", ("machines", "steps", "output")),
    "jobs": ("jobs", "validate_jobs", ("profile", "output")),
    "problems": ("published", "validate_problems", ("profile", "output")),
    "published": ("published", "validate_published", ("profile", "steps", "compiled", "output")),
}


def validate(**options: Any) -> int:
    """Answer ``placer validate`` with the options of the command by name; returns the exit code.

    Raises click.UsageError for options that do not go together.
    """
    asked = [name for name in _QUESTIONS if options[name]]
    if len(asked) > 1:
        raise click.UsageError(f"{_listed(asked)} are different questions: ask one at a time")
    of_suites = [name for name in _OF_SUITES if options[name] not in (None, False, ())]
    if asked and of_suites:
        raise click.UsageError(f"{_listed(asked)} runs no suite and replays no record: leave out {_listed(of_suites)}")
    module, function, names = _QUESTIONS[asked[0]] if asked else _SUITES
    if options["profile"] is not None and "profile" not in names:
        raise click.UsageError(f"{_listed(asked)} names its own hardware: leave out --profile")
    if options["compiled"] and "compiled" not in names:
        raise click.UsageError("--compiled compares published steps: say --published")
    if options["steps"] is not None and "steps" not in names:
        raise click.UsageError("--steps counts published steps: say --published or --machines")
    if options["what_if"] and options["against"] is None and options["suite"] not in ("reference", "full"):
        raise click.UsageError("--what-if predicts the reference systems: give --suite reference, or --against RECORD")
    output = None if options["output"] is None else Path(options["output"])
    if output is not None and asked:  # a run of a suite continues its record
        check_free(output)
    answer = getattr(importlib.import_module(f"placer.calibration.lab.validators.{module}"), function)
    return int(answer(**{**{name: options[name] for name in names}, "output": output}))


def _listed(names: list[str]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)
