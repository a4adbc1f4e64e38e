"""``placer doctor``: what torch and the driver see here, what placer knows of it, and what to run next."""

from __future__ import annotations

import json

import click

from placer.cli.options import device_option, usage_errors
from placer.cli.output import terminal, write_result


@click.command("doctor")
@click.option("--try", "tries", is_flag=True,
              help="Run a small op and a short profiler session on each device, in a process of its own.")  # fmt: skip
@device_option("A device to try.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--output", metavar="FILE", help="Write to FILE instead of stdout.")
@click.pass_context
def command(ctx: click.Context, tries: bool, devices: tuple[str, ...], form: str, output: str | None) -> None:
    """What torch and the driver see on this machine, what placer knows of it, and what to run next.

    Touches no device without --try. The JSON is what a bug report needs. Exit code 1 where something that placer needs
    is broken.
    """
    from placer.cli.diagnosis import diagnose
    from placer.cli.diagnosis_text import render
    from placer.cli.trial import try_device

    if devices and not tries:
        raise click.UsageError("--device says what to try: give --try, too", ctx)
    with usage_errors():
        found = diagnose(try_device if tries else None, devices)
    if form == "json":
        text = json.dumps(found, indent=2)
    else:
        width, color = terminal(output)
        text = render(found, width=width, color=color)
    write_result(text, output)
    if found["broken"]:
        from placer.errors import PlacerError

        raise PlacerError("; ".join(found["broken"]))
