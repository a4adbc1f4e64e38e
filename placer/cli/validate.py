"""``placer validate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from placer.cli.options import checked, loaded
from placer.cli.output import show_text
from placer.files import check_free

if TYPE_CHECKING:
    from placer.profile import Profile

#: No machine has more; torch would start this many.
MOST_THREADS = 4096


@click.command("validate")
@click.option(
    "--suite",
    type=click.Choice(["quick", "reference", "full", "held-out"]),
    default=None,
    help="Networks to run.  [default: quick; with --against, all of the record]",
)
@click.option("--threads", metavar="1,2", help="Numbers of CPU threads to run with.  [default: as the process has]")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the record to FILE.")
@click.option("--against", metavar="RECORD", help="Compare with a record of earlier measurements; nothing is run.")
@click.option(
    "--profile",
    metavar="FILE|NAME",
    help="Predict from another profile than this machine's; with --against, also from a GPU of the catalog, "
    "driven by the CPU of the record's profile.",
)
@click.option(
    "--estimate",
    is_flag=True,
    default=None,
    help="Predict as before a calibration, from another class of CPU; --profile tells how fast this one is.",
)
@click.option(
    "--published",
    is_flag=True,
    default=None,
    help="Compare with published steps on GPUs of the catalog; --profile names the host. "
    "They are in the repository, not in the package.",
)
@click.option(
    "--problems",
    is_flag=True,
    default=None,
    help="Compare with KernelBench's published problems, a few ops each; --profile names the host.",
)
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Published steps to compare.  [default: 600]")
@click.option("--compiled", is_flag=True, help="Compare the published steps of compiled networks with the same eager.")
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    is_flag=False,
    flag_value="",
    metavar="[GPU]",
    help="Predict the reference systems on a GPU of the catalog, too. May be repeated.  [without a name: "
    "on the accounts' own hardware, and on a Tesla T4]",
)
@click.option(
    "--accounts",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Compare with published accounts of CPU and GPU; nothing is run.",
)
@click.option(
    "--machines",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Compare with published times of ops and steps on CPUs of many cores and Apple's chips; nothing is run.",
)
@click.option("--jobs", is_flag=True, help="Run jobs of several parts instead of single steps: fits of real libraries.")
def command(
    suite: str | None,
    threads: str | None,
    output: str | None,
    against: str | None,
    profile: str | None,
    estimate: bool | None,
    published: bool | None,
    problems: bool | None,
    steps: int | None,
    what_if: tuple[str, ...],
    accounts: str | None,
    machines: str | None,
    compiled: bool,
    jobs: bool,
) -> None:
    """Show predicted beside measured step times.

    Runs real networks; with --against, compares with an earlier record instead, and with --published and --accounts,
    with what others measured on GPUs that are not here.
    """
    of_a_suite = {
        "--suite": suite,
        "--against": against,
        "--threads": threads,
        "--estimate": estimate,
        "--what-if": what_if or None,
    }
    for_suites = [name for name, value in of_a_suite.items() if value is not None]
    questions = {
        "--accounts": accounts,
        "--machines": machines,
        "--published": published,
        "--problems": problems,
        "--jobs": jobs or None,
    }
    asked = [name for name, value in questions.items() if value is not None]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} are different questions: ask one at a time")
    if asked and for_suites:
        raise click.UsageError(f"{asked[0]} runs no suite and replays no record: leave out {' and '.join(for_suites)}")
    if profile is not None and (accounts or machines):
        raise click.UsageError(f"{asked[0]} names its own hardware: leave out --profile")
    if compiled and published is None:
        raise click.UsageError("--compiled compares published steps: say --published")
    if steps is not None and published is None and machines is None:
        raise click.UsageError("--steps counts published steps: say --published or --machines")
    from placer import calibration

    written = None if output is None else Path(output)
    if written is not None and (asked or against is not None):  # a run of a suite continues its record
        check_free(written)
    say = partial(show_text, err=True)
    if accounts is not None:
        code = calibration.validate_accounts(accounts, output=written, say=say)
    elif machines is not None:
        code = calibration.validate_machines(machines, steps=steps, output=written, say=say)
    elif jobs:
        code = calibration.validate_jobs(profile=_loaded(profile), output=written, say=say)
    elif problems is not None:
        code = calibration.validate_problems(profile=_loaded(profile), output=written, say=say)
    elif published is not None:
        validate = calibration.validate_compiled if compiled else calibration.validate_published
        code = validate(profile=_loaded(profile), steps=steps, output=written, say=say)
    else:
        checked(calibration.check_what_if, what_if or None, suite, against)
        code = calibration.validate_suite(
            suite=suite,
            threads=None if threads is None else checked(parse_counts, threads),
            output=output,
            against=against,
            estimate=bool(estimate),
            profile=profile if against is not None else _loaded(profile),
            what_if=[name for name in what_if if name] if what_if else None,
        )
    raise click.exceptions.Exit(code)


def _loaded(profile: str | None) -> Profile | None:
    return None if profile is None else loaded(profile)


def parse_counts(text: str) -> tuple[int, ...]:
    """``"1,2"`` as numbers, duplicates dropped. Raises ValueError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_THREADS for part in parts):
        raise ValueError(f"--threads takes numbers of at least 1, like 2 or 1,2,4, not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))
