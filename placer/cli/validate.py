"""``placer validate``."""

from __future__ import annotations

import click

from placer.cli.options import usage_errors


@click.command("validate")
@click.option("--suite", type=click.Choice(["quick", "reference", "full"]), default=None,
              help="Networks to run.  [default: quick; with --against, all of the record]")  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the record to FILE.")
@click.option("--against", metavar="RECORD", help="Compare with a record of earlier measurements; nothing is run.")
def command(suite: str | None, output: str | None, against: str | None) -> None:
    """Show predicted beside measured step times.

    Runs real networks; with --against, compares with an earlier record instead.
    """
    from placer.calibration import validation

    with usage_errors():
        code = validation.main(suite=suite, output=output, against=against)
    raise click.exceptions.Exit(code)
