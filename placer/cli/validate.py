"""``placer validate``."""

from __future__ import annotations

import click

from placer.cli.options import usage_errors

#: No machine has more; torch would start this many.
MOST_THREADS = 4096


@click.command("validate")
@click.option("--suite", type=click.Choice(["quick", "reference", "full"]), default=None,
              help="Networks to run.  [default: quick; with --against, all of the record]")  # fmt: skip
@click.option("--threads", metavar="1,2", help="Numbers of CPU threads to run with.  [default: as the process has]")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the record to FILE.")
@click.option("--against", metavar="RECORD", help="Compare with a record of earlier measurements; nothing is run.")
@click.option("--profile", metavar="FILE|NAME", help="Predict from another profile than this machine's.")
def command(
    suite: str | None, threads: str | None, output: str | None, against: str | None, profile: str | None
) -> None:
    """Show predicted beside measured step times.

    Runs real networks; with --against, compares with an earlier record instead.
    """
    from placer.calibration import validate_suite

    with usage_errors():
        counts = None if threads is None else parse_counts(threads)
        code = validate_suite(suite=suite, threads=counts, output=output, against=against, profile=profile)
    raise click.exceptions.Exit(code)


def parse_counts(text: str) -> tuple[int, ...]:
    """``"1,2"`` as numbers, duplicates dropped. Raises ValueError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MOST_THREADS for part in parts):
        raise ValueError(f"--threads takes numbers of at least 1, like 2 or 1,2,4, not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))
