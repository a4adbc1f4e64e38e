"""``placer explain``."""

from __future__ import annotations

import os
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from placer.cli.options import (
    OF_A_STEP,
    checked,
    device_option,
    objective_option,
    parse_amounts,
    parse_batch,
    parse_sweep,
    refuse,
    step_options,
    work,
)
from placer.cli.output import result_options, say, write, write_result

if TYPE_CHECKING:
    from placer.profile import Profile

#: Options that say between what to choose, and by what.
_OF_A_CHOICE = ("devices", "profiles", "what_if", "objective", "price", "watts", "sweep")
#: Readings of the speed probe: some fifteen milliseconds of work.
READINGS = 64
#: Factor below which nothing is said of the machine's speed: on a shared one, smaller changes come and go all the time.
NOTABLE = 1.25


@click.command("explain")
@click.argument("target", required=False)
@step_options
@click.option("--threads", type=click.Choice(["keep", "tune"]), default="keep", show_default=True,
              help="tune: also compare the calibrated numbers of CPU threads.")  # fmt: skip
@device_option("Compare this device only.")
@click.option("--profile", "profiles", multiple=True, metavar="FILE|NAME",
              help="Price with this profile instead of this machine's. Several stand side by side.")  # fmt: skip
@click.option("--what-if", "what_if", metavar="GPU|NAME",
              help='Add a GPU that is not here to the comparison: "RTX 4090" (placer gpus lists them all), or the '
                   "accelerator of another profile.")  # fmt: skip
@objective_option("What the choice makes small.")
@click.option("--price", multiple=True, metavar="DEVICE=DOLLARS",
              help="Dollars per hour of the machine while the work runs on DEVICE. May be repeated.")
@click.option("--watts", multiple=True, metavar="DEVICE=WATTS",
              help="Power while the work runs on DEVICE, instead of an estimate from data sheets. May be repeated.")
@click.option("--sweep", metavar="batch=1:4096",
              help="One row per batch size, or number of steps (steps=1:4096), and where it turns.")  # fmt: skip
@result_options("text", "json", "html")
def command(
    target: str | None, threads: str, devices: tuple[str, ...], profiles: tuple[str, ...], what_if: str | None,
    objective: str, price: tuple[str, ...], watts: tuple[str, ...], sweep: str | None, form: str, output: str | None,
    **of_a_step: Any,
) -> None:  # fmt: skip
    """Say where a model runs faster, and why.

    Without TARGET, show the last decisions taken on this machine.

    TARGET is package.module:attribute or file.py:attribute (a module, a placer.Job, a class or a factory that takes no
    argument), or an exported program, file.pt2.
    """
    # Pricing multiplies matrices of some hundred rows: threads of numpy's own would wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = click.get_current_context()
    if target is None:
        refuse(context, (*OF_A_STEP, "threads", *_OF_A_CHOICE), "needs a TARGET")
        from placer.cli.decisions import LastDecisions

        write(LastDecisions(), form, output)
        return
    from placer.api import explain_workload
    from placer.cli import sweep as sweeps
    from placer.decision import objective_of
    from placer.workload import Job, check_available, check_devices

    shapes = [checked(parse_batch, text) for text in of_a_step["batches"]]
    wanted = None if sweep is None else checked(parse_sweep, sweep)
    prices, powers = checked(parse_amounts, "price", price), checked(parse_amounts, "watts", watts)
    aim = checked(objective_of, objective, prices, powers)
    names = checked(check_devices, devices or None)
    if names is not None and not profiles:
        checked(check_available, names, "--device")
    if wanted is not None and wanted.over == "batch" and not all(shape for shape, _ in shapes):
        raise click.UsageError("--sweep varies the first size of every input, and one is a scalar", context)

    what = work(context, target, **of_a_step)
    if isinstance(what, Job):
        refuse(context, ("threads",), "is for a single step; a Job says what to run in its parts")
    if wanted is not None:
        checked(sweeps.check_sweep, wanted, what)
    explain = partial(
        explain_workload, names=names, threads=threads, profile=list(profiles) or None, what_if=what_if, objective=aim
    )
    priced = partial(explain, advice=False)
    swept = None if wanted is None else sweeps.sweep(wanted, what, priced)
    if swept is not None and form != "html":
        write(swept, form, output)
    elif form != "html":
        write(explain(what), form, output)
    else:
        explanation = explain(what)
        if swept is None and not isinstance(what, Job):
            swept = sweeps.around(what, priced)
        write_result(explanation.to_html(swept), output)
    if not profiles:  # other profiles' prices hold at the speed their machines had
        _warn_of_speed()


def _warn_of_speed() -> None:
    """A line on stderr where the machine's speed has changed: what holds just now is no part of the explanation."""
    from placer.decision import current_profile

    profile = current_profile()
    found = None if profile.estimated else speed_warning(profile)
    if found is not None:
        say(found)


def speed_warning(profile: Profile, *, reading: float | None = None) -> str | None:
    """One line where the machine runs faster or slower just now than when it was calibrated; None: nothing to say.

    ``profile`` is this machine's. ``reading`` is the speed probe's, in seconds; None takes one now. A profile without a
    reading at this number of threads says nothing.
    """
    import torch

    from placer.calibration import USUAL_READING, SpeedProbe, is_alike

    threads = torch.get_num_threads()
    usual = profile.fit("cpu", threads).rates.get(USUAL_READING) if threads in profile.threads("cpu") else None
    if usual is None:
        return None
    if reading is None:
        speed_probe = SpeedProbe(threads)
        reading = statistics.median(speed_probe.read() for _ in range(READINGS))
    if is_alike(reading, usual, within=NOTABLE):
        return None
    took = f"a fixed piece of work takes {reading / usual:.1f} times as long as when it was calibrated"
    if reading > usual:
        return (
            f"something slows this machine down just now: {took}, and steps of many small ops will take about as much "
            "longer than predicted"
        )
    return (
        f"this machine is faster just now: {took}, and steps of many small ops less than predicted; if it stays so, "
        "run: placer calibrate"
    )
