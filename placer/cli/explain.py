"""``placer explain``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from placer.cli.options import device_option, terminal, usage_errors, write_result

if TYPE_CHECKING:
    from placer.cli.shapes import Range, Shape
    from placer.explanation import Explanation
    from placer.explanation.sweep import Sweep
    from placer.workload import Workload


@click.command("explain")
@click.argument("target", required=False)
@click.option("--batch", "batches", multiple=True, metavar="32,84",
              help="Shape of an input, float32 unless it says otherwise (4,128:int64). "
                   "Repeat it for a model of several inputs.")  # fmt: skip
@click.option("--mode", type=click.Choice(["train", "infer"]), help="[default: as the model is]")
@click.option("--optimizer", metavar="NAME", help="Optimizer of a training step.  [default: adam]")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to run.  [default: a long run]")
@click.option("--data", type=click.Choice(["host", "pinned", "device"]), default="host", show_default=True,
              help="Where the batches live.")  # fmt: skip
@click.option("--threads", type=click.Choice(["keep", "tune"]), default="keep", show_default=True,
              help="tune: also compare the calibrated numbers of CPU threads.")  # fmt: skip
@device_option("Compare this device only.")
@click.option("--profile", "profiles", multiple=True, metavar="FILE|NAME",
              help="Price with this profile instead of this machine's. Several stand side by side.")  # fmt: skip
@click.option("--what-if", "what_if", metavar="NAME", help="Add the accelerator of another profile to the comparison.")
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
    sweep: str | None,
    form: str,
    output: str | None,
) -> None:
    """Say where a model runs faster, and why.

    Without TARGET, show the last decisions taken on this machine.

    TARGET is package.module:attribute or file.py:attribute (a module, a class or a factory that takes no argument), or
    an exported program, file.pt2.
    """
    # Prices need matrices of some hundred rows: with threads of its own, numpy waits for those more than it computes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = click.get_current_context()
    if target is None:
        _no_workload_options(context)
        write_result(_past(form, output), output)
        return
    from placer.cli.shapes import parse_batch, parse_sweep
    from placer.workload import load_target

    with usage_errors():
        shapes = [parse_batch(text) for text in batches]
        wanted = None if sweep is None else parse_sweep(sweep)
    exported = target.endswith(".pt2")
    if not shapes and not exported:
        raise click.UsageError("--batch is missing: give the shape of the model's input, like --batch 32,84", context)
    if wanted is not None and wanted.over == "batch" and not all(shape for shape, _ in shapes):
        raise click.UsageError("--sweep varies the first size of every input, and one is a scalar", context)

    from placer.workload import check_devices, make_workload

    inputs = _example(shapes) if shapes else None
    draw: Callable[[], None] | None = None
    if exported:
        from placer.workload import load_exported

        model, own = load_exported(target, train=mode == "train")
        inputs = own if inputs is None else inputs
    else:
        model, draw = load_target(target)
    with usage_errors():
        workload = make_workload(model, example=inputs, mode=mode, optimizer=optimizer, steps=steps, data=data)
        workload = replace(workload, draw=draw)
        names = check_devices(devices or None)
        explain = partial(_explain, names=names, threads=threads, profiles=profiles, what_if=what_if)
        swept = None if wanted is None else _swept(wanted, workload, explain)
        if swept is not None and form != "html":
            write_result(_rendered_sweep(swept, form, output), output)
            _warn_of_pace(profiles)
            return
        explanation = explain(workload, advice=True)
        if form == "html" and swept is None:
            swept = _around(workload, explain)
    write_result(_rendered(explanation, form, output, swept), output)
    _warn_of_pace(profiles)


def _warn_of_pace(profiles: tuple[str, ...]) -> None:
    """On stderr: what holds for this moment is no part of the explanation."""
    if profiles:  # prices of any machine, at the pace it had
        return
    from placer.cli.pace import warning
    from placer.profile import load_cached

    found = warning(load_cached(None))
    if found is not None:
        click.echo(f"placer: {found}", err=True)


def _no_workload_options(context: click.Context) -> None:
    """Without a TARGET nothing is priced, so options about the workload would be silently ignored."""
    for name in ("batches", "mode", "optimizer", "steps", "data", "threads", "devices", "profiles", "what_if", "sweep"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = next(p for p in context.command.params if p.name == name).opts[0]
            raise click.UsageError(f"{option} needs a TARGET", context)


def _example(shapes: list[Shape]) -> tuple[Any, ...]:
    from placer.cli.shapes import example

    return example(shapes)


def _explain(
    workload: Workload,
    *,
    names: Any,
    threads: str,
    profiles: tuple[str, ...],
    what_if: str | None,
    advice: bool = False,
) -> Explanation:
    from placer.api import explain_workload
    from placer.workload import check_available

    if not profiles and names is not None:
        check_available(names)
    return explain_workload(workload, names, threads, list(profiles) or None, what_if, advice=advice)


def _swept(wanted: Range, workload: Workload, explain: Callable[[Workload], Explanation]) -> Sweep:
    """The workload at every batch size or number of steps."""
    from placer.cli.sweep import run
    from placer.decision import with_batch

    return run(wanted, lambda size: explain(workload if size is None else with_batch(workload, size)))


def _around(workload: Workload, explain: Callable[[Workload], Explanation]) -> Sweep | None:
    """A few batch sizes around the one asked about, for the report's plot; None where there is no such size."""
    from placer.cli.shapes import Range
    from placer.decision import batch_size
    from placer.errors import TraceError

    size = batch_size(workload)
    if size is None:
        return None
    try:
        return _swept(Range("batch", _sizes_around(size)), workload, explain)
    except TraceError:
        return None


def _sizes_around(size: int) -> tuple[int, ...]:
    return tuple(sorted({max(size // 16, 1), max(size // 4, 1), size, size * 4, size * 16}))


def _past(form: str, output: str | None) -> str:
    from placer.cli import decisions

    found = decisions.last_decisions()
    if form == "json":
        return decisions.to_json(found)
    if form == "html":
        return decisions.newest(found).to_html()
    width, color = terminal(output)
    return decisions.to_text(found, width=width, color=color)


def _rendered(explanation: Explanation, form: str, output: str | None, sweep: Sweep | None = None) -> str:
    if form == "json":
        return explanation.to_json()
    if form == "html":
        from placer.explanation.html import render as page

        return page(explanation, sweep)
    from placer.explanation.text import render

    width, color = terminal(output)
    return render(explanation, width=width, color=color)


def _rendered_sweep(sweep: Sweep, form: str, output: str | None) -> str:
    if form == "json":
        return sweep.to_json()
    from placer.explanation.sweep_text import render

    width, color = terminal(output)
    return render(sweep, width=width, color=color)
