"""``placer explain``."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Any

import click

from placer.cli.output import result_options, write
from placer.cli.target import (
    OF_A_STEP,
    checked,
    device_option,
    epoch_options,
    objective_option,
    parse_amounts,
    rate_options,
    refuse,
    target_options,
    what_if_option,
    work,
)

#: Options that say between what to choose, by what, and what else to do.
_OF_A_CHOICE = (
    "steps_per_epoch", "epochs", "threads", "devices", "profiles", "what_if", "objective", "price", "watts", "sweep",
    "measure",
)  # fmt: skip
#: Options that the command that measures does not have: a machine's profile, and how and where to show an answer.
_NOT_MEASURED = ("target", "profiles", "measure", "full", "as_json", "as_html", "form", "output")


@click.command("explain")
@target_options(required=False)
@epoch_options("Steps of an epoch, with --epochs: hours, money and energy of the whole run.")
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
@what_if_option
@objective_option("What the choice minimizes.")
@rate_options
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
@result_options("text", "json", "html")
def command(
    target: str | None,
    steps_per_epoch: int | None,
    epochs: int | None,
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
    form: str,
    output: str | None,
    **of_a_step: Any,
) -> None:
    """Say where a model runs faster, and why: a line a fact.

    Without TARGET, show the last decisions taken on this machine.
    """
    # Pricing multiplies matrices of some hundred rows: threads of numpy's own would wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = click.get_current_context()
    if form != "text" or sweep is not None:
        refuse(context, ("full",), "is for the text of one answer; json and html have everything, a sweep is a table")
    texts = {"full": full} if form == "text" and sweep is None else {}
    if target is None:
        refuse(context, (*OF_A_STEP, *_OF_A_CHOICE), "needs a TARGET")
        from placer.cli.decisions import last_decisions

        write(last_decisions(), form, output, **texts)
        return
    if sweep is not None:
        refuse(context, ("measure",), "times one batch; leave --sweep out")
    from placer.api import check_measurable, explained
    from placer.cli.sweep import around, check_sweep, parse_sweep, run_sweep
    from placer.decision import ask, objective_of
    from placer.workload import Job, Workload, check_available, check_devices

    wanted = None if sweep is None else checked(parse_sweep, sweep)
    prices, powers = checked(parse_amounts, "price", price), checked(parse_amounts, "watts", watts)
    aim = checked(objective_of, objective, prices, powers)
    names = checked(check_devices, devices or None)
    if names is not None and not profiles:
        checked(check_available, names, "--device")
    if steps_per_epoch or epochs:
        refuse(context, ("steps",), "is what --steps-per-epoch and --epochs multiply to; leave it out")
        if not steps_per_epoch:
            raise click.UsageError("--epochs needs --steps-per-epoch, the batches of one", context)
        epochs = epochs or 1
        of_a_step["steps"] = epochs * steps_per_epoch
    model = work(context, target, **of_a_step)
    if epochs and isinstance(model, Workload):
        model = replace(model, epochs=epochs)
    if isinstance(model, Job):
        refuse(context, ("steps_per_epoch", "epochs"), "is for a single step; a Job says how often its parts run")
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
    if form == "html":
        swept = around(model, question) if swept is None and not isinstance(model, Job) else swept
        write(explanation, form, output, sweep=swept)
    elif form == "text":
        write(explanation, form, output, full=full, verify=_measuring(context))
    else:
        write(explanation, form, output)


def _measuring(context: click.Context) -> str:
    """The command that was typed, with ``--measure``, as it is run on the machine that is asked about."""
    words = ["placer", "explain", str(context.params["target"])]
    for option in context.command.params:
        name = str(option.name)
        if context.get_parameter_source(name) is not click.core.ParameterSource.COMMANDLINE or name in _NOT_MEASURED:
            continue
        value = context.params[name]
        for word in value if option.multiple else [value]:
            words += [option.opts[0], str(word)]
    return shlex.join([*words, "--measure"])
