"""``placer doctor``: what torch and the driver see here, what placer knows of it, and what to run next."""

from __future__ import annotations

import json

import click

from placer.cli.output import terminal, write_result


@click.command("doctor")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", metavar="FILE", help="Write to FILE instead of stdout.")
def command(form: str, output: str | None) -> None:
    """What torch and the driver see on this machine, what placer knows of it, and what to run next.

    Touches no device. The JSON is what a bug report needs. Exit code 1 where something that placer needs is broken.
    """
    from placer.cli.diagnosis import diagnose
    from placer.cli.diagnosis_text import render

    found = diagnose()
    if form == "json":
        text = json.dumps(found, indent=2)
    else:
        width, color = terminal(output)
        text = render(found, width=width, color=color)
    write_result(text, output)
    if found["broken"]:
        from placer.errors import PlacerError

        raise PlacerError("; ".join(found["broken"]))
