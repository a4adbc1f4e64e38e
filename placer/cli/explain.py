"""``placer explain``."""

from __future__ import annotations

import os
import shlex
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
from placer.cli.output import chosen_form, form_flags, result_options, terminal, write, write_result

#: Options that say between what to choose, by what, and what else to do.
_OF_A_CHOICE = ("devices", "profiles", "what_if", "objective", "price", "watts", "sweep", "measure")
#: Options that the command that measures does not have: a machine's profile, and how and where to show an answer.
_NOT_MEASURED = ("profiles", "measure", "full", "as_json", "as_html", "form", "output")


class _Explain(click.Command):
    """Keeps what was typed, to show it again."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["typed"] = list(args)
        return super().parse_args(ctx, args)


@click.command("explain", cls=_Explain)
@click.argument("target", required=False)
@step_options
@click.option(
    "--threads",
    type=click.Choice(["keep", "tune"]),
    default="keep",
    show_default=True,
    help="tune: also compare the calibrated numbers of CPU threads.",
)
@device_option("Compare this device only.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="FILE|NAME",
    help="Predict with this profile instead of this machine's. Several stand side by side.",
)
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="GPU|NAME",
    help='Add a GPU that is not here to the comparison: "RTX 4090" (placer gpus lists them all), or the '
    "accelerator of another profile. May be repeated.  [default: a T4, an RTX 4090 and an H100 where "
    "there is only a CPU]",
)
@objective_option("What the choice minimizes.")
@click.option(
    "--price",
    multiple=True,
    metavar="DEVICE=DOLLARS",
    help="Dollars per hour of the machine while the work runs on DEVICE. May be repeated.",
)
@click.option(
    "--watts",
    multiple=True,
    metavar="DEVICE=WATTS",
    help="Power while the work runs on DEVICE, instead of an estimate from data sheets. May be repeated.",
)
@click.option(
    "--sweep",
    metavar="batch=1:4096",
    help="One row per batch size, or number of steps (steps=1:4096), and where it turns.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also time real steps on this machine, in some ten seconds, and show them beside the prediction.",
)
@click.option("--full", is_flag=True, help="Also show layers, operators, and what a step is made of.")
@form_flags
@result_options("text", "json", "html")
def command(
    target: str | None,
    threads: str,
    devices: tuple[str, ...],
    profiles: tuple[str, ...],
    what_if: tuple[str, ...],
    objective: str,
    price: tuple[str, ...],
    watts: tuple[str, ...],
    sweep: str | None,
    measure: bool,
    full: bool,
    as_json: bool,
    as_html: bool,
    form: str,
    output: str | None,
    **of_a_step: Any,
) -> None:
    """Say where a model runs faster, and why: a line a fact.

    Without TARGET, show the last decisions taken on this machine.

    TARGET is package.module:attribute or file.py:attribute (a module, a placer.Job, a class or a factory, perhaps with
    (arguments) behind it), hf:NAME of a transformers model, or an exported program, file.pt2.
    """
    # Pricing multiplies matrices of some hundred rows: threads of numpy's own would wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = click.get_current_context()
    form = chosen_form(context, form, as_json=as_json, as_html=as_html)
    if form != "text" or sweep is not None:
        refuse(context, ("full",), "is for the text of one answer; json and html have everything, a sweep is a table")
    if target is None:
        refuse(context, (*OF_A_STEP, "threads", *_OF_A_CHOICE), "needs a TARGET")
        from placer.cli.decisions import LastDecisions

        write(LastDecisions(full=full), form, output)
        return
    if sweep is not None:
        refuse(context, ("measure",), "times one batch; leave --sweep out")
    from placer.api import check_measurable, explained
    from placer.cli.sweep import around, check_sweep, run_sweep
    from placer.decision import ask, objective_of
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

    model = work(context, target, **of_a_step)
    if isinstance(model, Job):
        refuse(context, ("threads",), "is for a single step; a Job says what to run in its parts")
    if wanted is not None:
        checked(check_sweep, wanted, model)
    if measure:
        checked(check_measurable, model, profiles)
    question = ask(
        model,
        devices=names,
        threads=threads,
        profile=list(profiles) or None,
        what_if=what_if or None,
        objective=aim,
        recorded=not measure,
    )
    swept = None if wanted is None else run_sweep(wanted, model, question)
    if swept is not None and form != "html":
        write(swept, form, output)
        return
    explanation = explained(question, measure=measure)
    if form == "json":
        write(explanation, form, output)
    elif form == "text":
        from placer.explanation import render_short, render_text

        width, color = terminal(output)
        render = render_text if full else render_short
        write_result(render(explanation, width=width, color=color, verify=_measuring(context)), output)
    else:
        if swept is None and not isinstance(model, Job):
            swept = around(model, question)
        write_result(explanation.to_html(swept), output)


def _measuring(context: click.Context) -> str:
    """The command that was typed, with ``--measure``, as it is run on the machine that is asked about."""
    left_out = {name: p for p in context.command.params if p.name in _NOT_MEASURED for name in p.opts}
    repeated: list[str] = []
    words = iter(context.meta["typed"])
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in left_out:
            repeated.append(word)
        elif not equals and not getattr(left_out[name], "is_flag", False):
            next(words, None)  # its value
    return shlex.join(["placer", "explain", *repeated, "--measure"])
