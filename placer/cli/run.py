"""``placer run``."""

from __future__ import annotations

import click

from placer.cli.group import RunLast
from placer.cli.output import result_options
from placer.cli.target import checked, epoch_options, parse_amounts, rate_options, what_if_option


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.option("--explain", is_flag=True, help="Add the whole explanation of each model.")
@what_if_option
@epoch_options("Batches of an epoch.  [default: as the script's loader has]")
@rate_options
@click.option("--profile", metavar="FILE|NAME", help="Predict with this profile instead of this machine's.")
@click.option(
    "--fail-if-slower-than",
    "limit",
    type=click.FloatRange(min=1.0),
    metavar="1.3",
    help="Exit with 3 where the loop takes more than so many times what it would on the best device that is here or "
    "named by --what-if.",
)
@result_options("text", "json")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    module: bool,
    explain: bool,
    what_if: tuple[str, ...],
    steps_per_epoch: int | None,
    epochs: int | None,
    price: tuple[str, ...],
    watts: tuple[str, ...],
    profile: str | None,
    limit: float | None,
    form: str,
    output: str | None,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a script, then say where its models finish first.

    It runs as with python, and nothing in it changes. The report goes to stderr when it has ended.
    """
    from placer.run import ReportOptions, Session, prepare

    options = ReportOptions(
        profile=profile,
        what_if=what_if,
        explain=explain,
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        price=checked(parse_amounts, "price", price),
        watts=checked(parse_amounts, "watts", watts),
    )
    run = prepare(script, arguments, module=module)
    session = Session(options, form=form, output=output)

    def watched() -> None:
        session.begin()
        try:
            run()
        except SystemExit as end:
            if limit is None or end.code not in (None, 0):
                raise
        if limit is not None:
            raise SystemExit(session.judge(limit))

    raise RunLast(watched)
