"""``placer calibrate``."""

from __future__ import annotations

import click

from placer.cli.options import device_option, usage_errors


@click.command("calibrate")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, metavar="S",
              help="Seconds to spend in all.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Rougher, in at most 15 seconds.")
@device_option("Calibrate this device only.")
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write the profile to FILE.")
@click.option("--quiet", is_flag=True, help="No progress, no summary.")
def command(budget: float, quick: bool, devices: tuple[str, ...], output: str | None, quiet: bool) -> None:
    """Measure this machine, once.

    Afterwards a workload can be priced without running it.
    """
    from placer.calibration import calibrate, render_summary
    from placer.workload import check_available, check_devices

    with usage_errors():
        names = check_devices(devices or None)
        if names is not None:
            check_available(names, "--device")
    try:
        profile = calibrate(budget=budget, devices=names, progress=not quiet, path=output, quick=quick)
    except KeyboardInterrupt:
        click.echo("placer: interrupted; run the same command again to go on where it stopped", err=True)
        raise click.exceptions.Exit(1) from None
    if not quiet:
        click.echo(render_summary(profile))
