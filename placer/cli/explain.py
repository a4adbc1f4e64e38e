"""``placer explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from placer.cli.options import device_option, terminal, usage_errors, write_result

if TYPE_CHECKING:
    from placer.cli.sweep import Sweep
    from placer.explanation import Explanation

#: Decisions are looked for among this many history entries; step times stand between them.
_HISTORY = 500


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
@click.option("--profile", metavar="FILE|NAME", help="Price with this profile instead of this machine's.")
@click.option("--what-if", "what_if", metavar="NAME", help="Add the accelerator of another profile to the comparison.")
@click.option("--sweep", metavar="batch=1:4096", help="One row per batch size (powers of two), and where it turns.")
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
    profile: str | None,
    what_if: str | None,
    sweep: str | None,
    form: str,
    output: str | None,
) -> None:
    """Say where a model runs faster, and why.

    Without TARGET, show the last decision taken on this machine.

    TARGET is package.module:attribute or file.py:attribute: a module, a class or a factory that takes no argument.
    """
    context = click.get_current_context()
    if target is None:
        _no_workload_options(context)
        write_result(_rendered(last_decision(), form, output), output)
        return
    from placer.cli.shapes import parse_batch, parse_sweep

    with usage_errors():
        shapes = [parse_batch(text) for text in batches]
        sizes = None if sweep is None else parse_sweep(sweep)
    if not shapes:
        raise click.UsageError("--batch is missing: give the shape of the model's input, like --batch 32,84", context)
    if sizes is not None and not all(shape for shape, _ in shapes):
        raise click.UsageError("--sweep varies the first size of every input, and one is a scalar", context)

    from placer.target import load_target

    model = load_target(target)
    arguments: dict[str, Any] = {
        "mode": mode, "optimizer": optimizer, "steps": steps, "data": data, "threads": threads,
        "devices": devices or None, "profile": profile, "what_if": what_if,
    }  # fmt: skip
    if sizes is None:
        from placer.api import explain
        from placer.cli.shapes import example

        with usage_errors():
            explanation = explain(model, example=example(shapes), **arguments)
        write_result(_rendered(explanation, form, output), output)
        return
    from placer.cli.sweep import run

    if form == "html":
        raise click.UsageError("--sweep has no html format: text and json are accepted", context)
    with usage_errors():
        table = run(model, shapes, sizes, arguments)
    write_result(_rendered_sweep(table, form, output), output)


def last_decision() -> Explanation:
    """The newest decision in the history, with what its steps took since. Raises PlacerError if there is none."""
    from dataclasses import replace

    from placer import history
    from placer.errors import PlacerError
    from placer.explanation import Explanation
    from placer.units import format_seconds

    observed: str | None = None
    for entry in reversed(history.last(_HISTORY)):
        if entry.get("kind") == "steps" and observed is None and isinstance(entry.get("step_seconds"), (int, float)):
            observed = (
                f"steps seen since took {format_seconds(entry['step_seconds'])} on {entry.get('device')} (median)"
            )
        if entry.get("kind") == "decision" and isinstance(entry.get("explanation"), dict):
            found = Explanation.from_dict(entry["explanation"])
            notes = (f"decided {entry.get('time', 'at an unknown time')}", *((observed,) if observed else ()))
            return replace(found, notes=(*notes, *found.notes))
    raise PlacerError(
        "no decision was taken on this machine yet; name a model: placer explain file.py:attribute --batch 32,84"
    )


def _no_workload_options(context: click.Context) -> None:
    """Without a TARGET nothing is priced, so options about the workload would be silently ignored."""
    for name in ("batches", "mode", "optimizer", "steps", "data", "threads", "devices", "profile", "what_if", "sweep"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = next(p for p in context.command.params if p.name == name).opts[0]
            raise click.UsageError(f"{option} needs a TARGET", context)


def _rendered(explanation: Explanation, form: str, output: str | None) -> str:
    if form == "json":
        return explanation.to_json()
    if form == "html":
        return explanation.to_html()
    from placer.explanation.text import render

    width, color = terminal(output)
    return render(explanation, width=width, color=color)


def _rendered_sweep(table: Sweep, form: str, output: str | None) -> str:
    if form == "json":
        return table.to_json()
    width, color = terminal(output)
    return table.to_text(width=width, color=color)
