"""``placer validate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from placer.cli.options import checked, loaded
from placer.cli.output import show_text

#: No machine has more; torch would start this many.
MOST_THREADS = 4096


@click.command("validate")
@click.option("--suite", type=click.Choice(["quick", "reference", "full", "held-out"]), default=None,
              help="Networks to run.  [default: quick; with --against, all of the record]")  # fmt: skip
@click.option("--threads", metavar="1,2", help="Numbers of CPU threads to run with.  [default: as the process has]")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the record to FILE.")
@click.option("--against", metavar="RECORD", help="Compare with a record of earlier measurements; nothing is run.")
@click.option("--profile", metavar="FILE|NAME",
              help="Predict from another profile than this machine's; with --against, also from a GPU of the catalog, "
                   "driven by the CPU of the record's profile.")  # fmt: skip
@click.option("--estimate", is_flag=True, default=None,
              help="Predict as before a calibration, from another class of CPU; "
                   "--profile tells how fast this one is.")  # fmt: skip
@click.option("--published", is_flag=True, default=None,
              help="Compare with published steps on GPUs of the catalog; --profile names the host. "
                   "They are in the repository, not in the package.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Published steps to price.  [default: 600]")
@click.option("--compiled", is_flag=True, help="Compare the published steps of compiled networks with the same eager.")
@click.option("--what-if", "what_if", multiple=True, is_flag=False, flag_value="", metavar="[GPU]",
              help="Price the reference systems on a GPU of the catalog, too. May be repeated.  [without a name: "
                   "on the accounts' own hardware, and on a Tesla T4]")  # fmt: skip
@click.option("--accounts", type=click.Path(dir_okay=False), metavar="FILE",
              help="Compare with published accounts of CPU and GPU; nothing is run.")  # fmt: skip
@click.option("--jobs", is_flag=True, help="Run jobs of several parts instead of single steps: fits of real libraries.")
def command(
    suite: str | None, threads: str | None, output: str | None, against: str | None, profile: str | None,
    estimate: bool | None, published: bool | None, steps: int | None, what_if: tuple[str, ...], accounts: str | None,
    compiled: bool, jobs: bool,
) -> None:  # fmt: skip
    """Show predicted beside measured step times.

    Runs real networks; with --against, compares with an earlier record instead, and with --published and --accounts,
    with what others measured on GPUs that are not here.
    """
    of_a_suite = {
        "--suite": suite, "--against": against, "--threads": threads, "--estimate": estimate,
        "--what-if": what_if or None,
    }  # fmt: skip
    given = [name for name, value in of_a_suite.items() if value is not None]
    if jobs:
        if given or any(value is not None for value in (accounts, published, steps)):
            raise click.UsageError("--jobs runs no suite: leave out all but --profile and --output")
        raise click.exceptions.Exit(_jobs(profile, output))
    if accounts is not None:
        if given or any(value is not None for value in (profile, published, steps)):
            raise click.UsageError("--accounts runs no suite and names its own hardware: leave out all but --output")
        raise click.exceptions.Exit(_against_accounts(accounts, output))
    if published is not None:
        if given:
            raise click.UsageError(f"--published runs no suite and replays no record: leave out {' and '.join(given)}")
        raise click.exceptions.Exit(_against_published(profile, steps, output, compiled=compiled))
    if compiled:
        raise click.UsageError("--compiled compares published steps: say --published")
    if steps is not None:
        raise click.UsageError("--steps counts published steps: say --published")
    from placer.calibration import check_what_if, validate_suite

    checked(check_what_if, what_if or None, suite, against)
    counts = None if threads is None else checked(parse_counts, threads)
    raise click.exceptions.Exit(validate_suite(
        suite=suite, threads=counts, output=output, against=against, estimate=bool(estimate),
        profile=profile if against is not None or profile is None else loaded(profile),
        what_if=[name for name in what_if if name] if what_if else None,
    ))  # fmt: skip


def _against_published(profile: str | None, steps: int | None, output: str | None, *, compiled: bool) -> int:
    from placer.calibration import validate_compiled, validate_published

    host = None if profile is None else loaded(profile)
    written = None if output is None else Path(output)
    say = partial(show_text, err=True)
    validate = validate_compiled if compiled else validate_published
    return validate(profile=host, steps=steps, output=written, say=say)


def _jobs(profile: str | None, output: str | None) -> int:
    from placer.calibration import validate_jobs

    given = None if profile is None else loaded(profile)
    written = None if output is None else Path(output)
    return validate_jobs(profile=given, output=written, say=partial(show_text, err=True))


def _against_accounts(collection: str, output: str | None) -> int:
    from placer.calibration import validate_accounts

    written = None if output is None else Path(output)
    return validate_accounts(collection, output=written, say=partial(show_text, err=True))


def parse_counts(text: str) -> tuple[int, ...]:
    """``"1,2"`` as numbers, duplicates dropped. Raises ValueError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_THREADS for part in parts):
        raise ValueError(f"--threads takes numbers of at least 1, like 2 or 1,2,4, not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))
