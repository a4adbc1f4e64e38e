"""``placer validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from placer import calibration
from placer.cli.target import checked, loaded
from placer.files import check_free

#: No machine has more; torch would start this many.
MOST_THREADS = 4096


@click.command("validate")
@click.option(
    "--suite",
    type=click.Choice(["quick", "reference", "full", "held-out"]),
    default=None,
    help="Networks to run; all but the quick ones are in the repository, not in the package.  "
    "[default: quick; with --against, all of the record]",
)
@click.option("--threads", metavar="1,2", help="Numbers of CPU threads to run with.  [default: as the process has]")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the record to FILE.")
@click.option("--against", metavar="RECORD", help="Compare with a record of earlier measurements; nothing is run.")
@click.option(
    "--share",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write a small record to send to placer's developers, and show what is in it; nothing is sent.  "
    "[without FILE: named by machine and day]",
)
@click.option(
    "--profile",
    metavar="FILE|NAME",
    help="Predict from another profile than this machine's; with --against, also from a GPU of the catalog, "
    "driven by the CPU of the record's profile.",
)
def command(
    suite: str | None,
    threads: str | None,
    output: str | None,
    against: str | None,
    profile: str | None,
    share: str | None,
    **research: Any,
) -> None:
    """Show predicted beside measured step times.

    Runs real networks; with --against, compares with an earlier record instead. A checkout of the repository has more
    questions, of what others measured.
    """
    counts = None if threads is None else checked(parse_counts, threads)
    chosen = profile if profile is None or against is not None else loaded(profile)
    if output is not None and against is not None:  # a run of a suite continues its record
        check_free(Path(output))
    validate = calibration.validate_suite if lab is None else lab.validate
    code = validate(
        suite=suite, output=output, against=against, profile=chosen, threads=counts, share=share, **research
    )
    raise click.exceptions.Exit(code)


def parse_counts(text: str) -> tuple[int, ...]:
    """``"1,2"`` as numbers, duplicates dropped. Raises ValueError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_THREADS for part in parts):
        raise ValueError(f"--threads takes numbers of at least 1, like 2 or 1,2,4, not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))


lab = calibration.research()
if lab is not None:
    command.params += lab.OPTIONS
