"""What a command line asks about: the options that say it, and the step or the job that they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from placer.cli.options import checked

if TYPE_CHECKING:
    from placer.cli.shapes import Shape
    from placer.workload import Job, Workload

F = TypeVar("F", bound=Callable[..., Any])
#: Names of the options that say what a single step is.
OF_A_STEP = ("batches", "mode", "optimizer", "steps", "data")
_OPTIONS = (
    click.option("--batch", "batches", multiple=True, metavar="32,84",
                 help="Shape of an input, float32 unless it says otherwise (4,128:int64). "
                      "Repeat it for a model of several inputs."),
    click.option("--mode", type=click.Choice(["train", "infer"]), help="[default: as the model is]"),
    click.option("--optimizer", metavar="NAME", help="Optimizer of a training step.  [default: adam]"),
    click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to run.  [default: a long run]"),
    click.option("--data", type=click.Choice(["host", "pinned", "device"]), default="host", show_default=True,
                 help="Where the batches live."),
)  # fmt: skip


def step_options(command: F) -> F:
    """``--batch``, ``--mode``, ``--optimizer``, ``--steps`` and ``--data``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse(context: click.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that would have no effect. Raises click.UsageError."""
    for name in names:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = next(p for p in context.command.params if p.name == name).opts[0]
            raise click.UsageError(f"{option} {why}", context)


def work(
    context: click.Context, target: str, shapes: list[Shape], *, mode: str | None, optimizer: str | None,
    steps: int | None, data: str,
) -> Workload | Job:  # fmt: skip
    """The step or the job that TARGET and the options name. Numbers whose drawing was put off are drawn where needed.

    Raises click.UsageError for options that do not go together, TargetError where there is no such target.
    """
    from placer.cli.shapes import example
    from placer.workload import Job, load_exported, load_target, make_workload

    inputs = example(shapes) if shapes else None
    model: Any
    draw: Callable[[], None] | None = None
    exported = target.endswith(".pt2")
    if exported:
        model, own = load_exported(target, train=mode == "train")
        inputs = own if inputs is None else inputs
    else:
        model, draw = load_target(target)
    if isinstance(model, Job):
        refuse(context, OF_A_STEP, "is for a single step; a Job says what to run in its parts")
        parts = [part.changed(workload=replace(part.workload, draw=draw)) for part in model.parts]
        return Job(parts, repeats=model.repeats, apart=model.apart)
    if not shapes and not exported:
        raise click.UsageError("--batch is missing: give the shape of the model's input, like --batch 32,84", context)
    made = checked(make_workload, model, example=inputs, mode=mode, optimizer=optimizer, steps=steps, data=data)
    return replace(made, draw=draw)
