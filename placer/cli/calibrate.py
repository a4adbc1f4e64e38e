"""``placer calibrate``."""

from __future__ import annotations

import click

from placer.cli.output import say, show_text
from placer.cli.target import checked, device_option


@click.command("calibrate")
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds to spend in all.",
)
@click.option("--quick", is_flag=True, help="Rougher, in at most 15 seconds.")
@device_option("Calibrate this device only.")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the profile to FILE.")
@click.option("--quiet", is_flag=True, help="No progress, no summary.")
def command(budget: float, quick: bool, devices: tuple[str, ...], output: str | None, quiet: bool) -> None:
    """Measure this machine, once.

    Afterwards the time of a workload can be predicted without running it.
    """
    from placer.calibration import calibrate, render_summary
    from placer.workload import check_available, check_devices

    names = checked(check_devices, devices or None)
    if names is not None:
        checked(check_available, names, "--device")
    try:
        profile = calibrate(budget=budget, devices=names, progress=not quiet, path=output, quick=quick)
    except KeyboardInterrupt:
        say("interrupted; run the same command again to go on where it stopped")
        raise click.exceptions.Exit(1) from None
    if not quiet:
        show_text(render_summary(profile))
