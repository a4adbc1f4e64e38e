"""``placer explain``."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

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
from placer.cli.output import result_options, write, write_result

#: Options that say between what to choose, and by what.
_OF_A_CHOICE = ("devices", "profiles", "what_if", "objective", "price", "watts", "sweep")


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

    TARGET is package.module:attribute or file.py:attribute (a module, a placer.Job, a class or a factory, perhaps with
    (arguments) behind it), hf:NAME of a transformers model, or an exported program, file.pt2.
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
