"""``placer run``."""

from __future__ import annotations

import click

from placer.cli.group import RunLast


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.option("--explain", is_flag=True, help="Add the whole explanation of each model.")
@click.option("--what-if", "what_if", metavar="GPU|NAME", help="Add a GPU that is not here to the comparison.")
@click.option("--profile", metavar="FILE|NAME", help="Predict with this profile instead of this machine's.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    module: bool, explain: bool, what_if: str | None, profile: str | None, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a script, then say where its models finish first.

    It runs as with python, and nothing in it changes. The report goes to stderr when it has ended.
    """
    from placer.run import ReportOptions, Session, prepare

    run = prepare(script, arguments, module=module)
    session = Session(ReportOptions(profile=profile, what_if=what_if, explain=explain))

    def watched() -> None:
        session.begin()
        run()

    raise RunLast(watched)
