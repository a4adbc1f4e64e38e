"""``placer explain``."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from placer.cli.options import amounts_option, checked, device_option, parse_amounts
from placer.cli.output import rendered, rendered_decisions, rendered_sweep, say, write_result
from placer.cli.work import OF_A_STEP, refuse, step_options, work

if TYPE_CHECKING:
    from placer.decision import Objective
    from placer.explanation import Explanation
    from placer.workload import Workload


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
@click.option("--on-cpu", "on_cpu", multiple=True, metavar="MODULE",
              help="Also price the model with this submodule on the CPU and the rest on an accelerator.")  # fmt: skip
@click.option("--objective", type=click.Choice(["time", "cost", "energy"]), default="time", show_default=True,
              help="What the choice makes small.")  # fmt: skip
@amounts_option("price", "DOLLARS", "Dollars per hour of the machine while the work runs on DEVICE.")
@amounts_option("watts", "WATTS", "Power while the work runs on DEVICE, instead of an estimate from data sheets.")
@click.option(
    "--sweep",
    metavar="batch=1:4096",
    help="One row per batch size, or number of steps (steps=1:4096), and where it turns.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE instead of stdout.")
def command(
    target: str | None,
    batches: tuple[str, ...],
    mode: str | None,
    optimizer: str | None,
    steps: int | None,
    data: str,
    threads: str,
    devices: tuple[str, ...],
    profiles: tuple[str, ...],
    what_if: str | None,
    on_cpu: tuple[str, ...],
    objective: str,
    price: tuple[str, ...],
    watts: tuple[str, ...],
    sweep: str | None,
    form: str,
    output: str | None,
) -> None:
    """Say where a model runs faster, and why.

    Without TARGET, show the last decisions taken on this machine.

    TARGET is package.module:attribute or file.py:attribute (a module, a placer.Job, a class or a factory that takes no
    argument), or an exported program, file.pt2.
    """
    # Pricing multiplies matrices of some hundred rows: threads of numpy's own would wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = click.get_current_context()
    if target is None:
        refuse(context, (*OF_A_STEP, "threads", "on_cpu", *_OF_A_CHOICE), "needs a TARGET")
        write_result(rendered_decisions(form, output), output)
        return
    from placer.cli import sweep as sweeps
    from placer.cli.job import job_explanation
    from placer.cli.shapes import parse_batch, parse_sweep
    from placer.decision import objective_of
    from placer.workload import Job, check_available, check_devices, check_on_cpu

    shapes = [checked(parse_batch, text) for text in batches]
    wanted = None if sweep is None else checked(parse_sweep, sweep)
    prices, powers = checked(parse_amounts, "price", price), checked(parse_amounts, "watts", watts)
    aim = checked(objective_of, objective, prices, powers)
    names = checked(check_devices, devices or None)
    if names is not None and not profiles:
        checked(check_available, names, "--device")
    if wanted is not None and wanted.over == "batch" and not all(shape for shape, _ in shapes):
        raise click.UsageError("--sweep varies the first size of every input, and one is a scalar", context)

    what = work(context, target, shapes, mode=mode, optimizer=optimizer, steps=steps, data=data)
    if isinstance(what, Job):
        refuse(context, ("threads", "on_cpu"), "is for a single step; a Job says what to run in its parts")
        if wanted is not None:
            checked(sweeps.check_sweep, wanted, what)
        job_explanation(what, wanted, names, profiles, what_if, aim, form, output)
        _warn_of_speed(profiles)
        return
    if wanted is not None and (wanted.part or wanted.over not in ("batch", "steps")):
        raise click.UsageError(f"--sweep {sweep} is for a placer.Job, and {target} is a model", context)
    workload = replace(what, on_cpu=checked(check_on_cpu, on_cpu, what))
    explain = partial(_explain, names=names, threads=threads, profiles=profiles, what_if=what_if, aim=aim)
    swept = None if wanted is None else sweeps.of_workload(wanted, workload, explain)
    if swept is not None and form != "html":
        write_result(rendered_sweep(swept, form, output), output)
        _warn_of_speed(profiles)
        return
    explanation = explain(workload, advice=True)
    if form == "html" and swept is None:
        swept = sweeps.around(workload, explain)
    write_result(rendered(explanation, form, output, swept), output)
    _warn_of_speed(profiles)


#: Options that say between what to choose, and by what.
_OF_A_CHOICE = ("devices", "profiles", "what_if", "objective", "price", "watts", "sweep")


def _explain(
    workload: Workload,
    *,
    names: Any,
    threads: str,
    profiles: tuple[str, ...],
    what_if: str | None,
    aim: Objective,
    advice: bool = False,
) -> Explanation:
    from placer.api import explain_workload

    return explain_workload(workload, names, threads, list(profiles) or None, what_if, aim, advice=advice)


def _warn_of_speed(profiles: tuple[str, ...]) -> None:
    """A line on stderr where the machine's speed has changed: what holds just now is no part of the explanation."""
    if profiles:  # other profiles' prices hold at the speed their machines had
        return
    from placer.cli.speed import warning
    from placer.decision import present_profile

    profile = present_profile()
    found = None if profile.estimated else warning(profile)
    if found is not None:
        say(found)
