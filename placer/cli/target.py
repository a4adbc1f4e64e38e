"""What a command line asks about: options that subcommands share, and the step or the job that they name."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from placer.profile import Profile
    from placer.workload import Job, Target, Workload

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
#: Largest size a sweep goes to, and a shape may have in one dimension: beyond, it is a typing error.
MAX_SIZE = 2**40
#: dtypes an input may have, by the name behind the colon.
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")

Shape = tuple[tuple[int, ...], str]
#: Names of the options that say what a single step is.
OF_A_STEP = (
    "batches", "mode", "loss", "loss_target", "optimizer", "autocast", "steps", "data", "outputs",
)  # fmt: skip
#: What a command's help says of TARGET.
_TARGETS = (
    "TARGET is package.module:attribute or file.py:attribute (a module, a placer.Job, a class or a factory, perhaps "
    "with (arguments) behind it), hf:NAME of a transformers model, or an exported program, file.pt2."
)
#: Names of dtypes that autocast computes in.
_AUTOCAST = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16"}


def target_options(*, required: bool) -> Callable[[F], F]:
    """TARGET, and the options in ``OF_A_STEP``, which the command gives to ``work``."""
    options = (
        click.argument("target", required=required),
        click.option(
            "--batch",
            "batches",
            multiple=True,
            metavar="32,84",
            help="Shape of an input, float32 unless it says otherwise (4,128:int64). "
            "Repeat it for a model of several inputs.",
        ),
        click.option("--mode", type=click.Choice(["train", "infer"]), help="[default: as the model is]"),
        click.option(
            "--loss",
            metavar="NAME",
            help="Loss of a training step: cross_entropy, CrossEntropyLoss, file.py:attribute.  "
            "[default: the output's own, else its sum]",
        ),
        click.option(
            "--loss-target",
            metavar="32:int64",
            help="Shape of what the loss compares with.  [default: as the model's output asks for]",
        ),
        click.option("--optimizer", metavar="NAME", help="Optimizer of a training step.  [default: adam]"),
        click.option(
            "--autocast", type=click.Choice(list(_AUTOCAST)), metavar="bf16|fp16", help="Run under torch.autocast."
        ),
        click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to run.  [default: a long run]"),
        click.option(
            "--data",
            type=click.Choice(["host", "pinned", "device"]),
            default="host",
            show_default=True,
            help="Where the batches live.",
        ),
        click.option(
            "--outputs",
            type=click.Choice(["host", "device"]),
            help="Where the outputs of an inference go.  [default: they stay where the batches stay]",
        ),
    )

    def add(command: F) -> F:
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{_TARGETS}"
        for option in reversed(options):
            command = option(command)
        return command

    return add


def epoch_options(steps_help: str) -> Callable[[F], F]:
    """``--steps-per-epoch`` and ``--epochs``."""
    count = click.IntRange(min=1)
    steps = click.option("--steps-per-epoch", type=count, metavar="N", help=steps_help)
    epochs = click.option("--epochs", type=count, metavar="N", help="Epochs to answer for.  [default: 1]")

    def add(command: F) -> F:
        return steps(epochs(command))

    return add


def what_if_option(command: F) -> F:
    """``--what-if``, which may be repeated."""
    text = (
        'Add a GPU that is not here to the comparison: "RTX 4090" (placer gpus lists them all), or the accelerator of '
        "another profile. May be repeated.  [default: a T4, an RTX 4090 and an H100 where there is only a CPU]"
    )
    return click.option("--what-if", "what_if", multiple=True, metavar="GPU|NAME", help=text)(command)


def rate_options(command: F) -> F:
    """``--price`` and ``--watts`` of devices, which may be repeated."""
    price = "Dollars per hour of the machine while the work runs on DEVICE. May be repeated."
    watts = "Power while the work runs on DEVICE, instead of an estimate from data sheets. May be repeated."
    command = click.option("--watts", multiple=True, metavar="DEVICE=WATTS", help=watts)(command)
    return click.option("--price", multiple=True, metavar="DEVICE=DOLLARS", help=price)(command)


def device_option(text: str) -> Callable[[F], F]:
    """``--device``, which may be repeated."""
    return click.option("--device", "devices", multiple=True, metavar="D", help=f"{text} May be repeated.")


def objective_option(text: str) -> Callable[[F], F]:
    """``--objective``."""
    choice = click.Choice(["time", "cost", "energy"])
    return click.option("--objective", type=choice, default="time", show_default=True, help=text)


def parse_amounts(option: str, texts: Sequence[str], what: str = "device") -> dict[str, float] | None:
    """``("cpu=0.10", "cuda=2.50")`` -> ``{"cpu": 0.1, "cuda": 2.5}``; None of none. A wrong text raises ValueError.

    ``what`` is what the names are of.
    """
    amounts: dict[str, float] = {}
    example = "cpu" if what == "device" else "T4"
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = 0.0
        if not name.strip() or not 0.0 < amount < math.inf:
            like = f"--{option} {example}=0.10"
            raise ValueError(f"--{option} {text!r} is not a {what} and a positive number, like {like}")
        amounts[name.strip()] = amount
    return amounts or None


def checked(check: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """What ``check`` makes of arguments. Those that it refuses with a ValueError are wrong usage.

    It does no more than check: what the command then does with them raises its own errors.
    """
    try:
        return check(*arguments, **options)
    except ValueError as error:
        raise click.UsageError(" ".join(str(error).split()), click.get_current_context(silent=True)) from error


def loaded(source: str | None) -> Profile:
    """This machine's profile (None), or that of a file or a name."""
    from placer import profile

    checked(profile.locate, source)
    return profile.load(source)


def refuse(context: click.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that would have no effect. Raises click.UsageError."""
    for name in names:
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            option = next(p for p in context.command.params if p.name == name).opts[0]
            raise click.UsageError(f"{option} {why}", context)


def work(
    context: click.Context,
    target: str,
    *,
    batches: Sequence[str],
    mode: str | None,
    loss: str | None,
    loss_target: str | None,
    autocast: str | None,
    **others: Any,
) -> Workload | Job:
    """The step or the job that TARGET and the options name. Numbers whose drawing was put off are drawn where needed.

    ``others`` are the options in ``OF_A_STEP`` that ``make_workload`` takes as they are.

    Raises click.UsageError for options that do not go together, TargetError where there is no such target.
    """
    import torch

    from placer.workload import Job, load_target, make_target, make_workload

    shapes = [checked(parse_batch, text, default="") for text in batches]
    criterion = _loss(context, target, loss, loss_target, mode)
    source = load_target(target, train=mode == "train")
    model = source.model
    if isinstance(model, Job):
        refuse(context, OF_A_STEP, "is for a single step; a Job says what to run in its parts")
        parts = [part.changed(workload=replace(part.workload, draw=source.draw)) for part in model.parts]
        return Job(parts, repeats=model.repeats)
    trains = getattr(model, "training", False) if mode is None else mode == "train"
    source = _with_batch(context, target, source, shapes, trains)
    dtype = None if autocast is None else getattr(torch, _AUTOCAST[autocast])
    inputs = source.args or source.kwargs
    made = checked(make_workload, model, batch=inputs, mode=mode, autocast=dtype, **others)
    made = replace(
        made, kwargs=dict(source.kwargs), draw=source.draw, inputs_assumed=source.assumed, notes=source.notes
    )
    if criterion is None:
        return made
    if not trains:
        raise click.UsageError("--loss is for training, and the model is in eval mode: give --mode train", context)
    compared, notes = _compared(loss_target, criterion, made)
    compared = checked(make_target, compared, criterion)
    return replace(made, loss=criterion, loss_target=compared, notes=(*made.notes, *notes))


def _loss(
    context: click.Context, target: str, loss: str | None, loss_target: str | None, mode: str | None
) -> Callable[..., Any] | None:
    """The loss that is asked for. What does not go with it is wrong usage."""
    from placer.workload import PREFIX, parse_loss

    if loss is None:
        refuse(context, ("loss_target",), "is what a loss compares the output with; give --loss too")
        return None
    if mode == "infer":
        raise click.UsageError("--loss is for training; leave it out, or give --mode train", context)
    if target.startswith(PREFIX):
        raise click.UsageError(f"--loss: {target} computes its own, of labels that it is given; leave it out", context)
    if loss_target is not None:
        checked(parse_batch, loss_target, "--loss-target")
    return checked(parse_loss, loss)


def _with_batch(context: click.Context, target: str, source: Target, shapes: Sequence[Shape], trains: bool) -> Target:
    """The target with the inputs whose shapes were given, or else those that it comes with. None: UsageError."""
    import torch
    from torch import nn

    from placer.workload import PREFIX, SUFFIX, example, takes

    typed = [(shape, getattr(torch, dtype) if dtype else None) for shape, dtype in shapes]
    if target.startswith(PREFIX):
        if len(typed) > 1:
            raise click.UsageError("--batch of an hf: model is the shape of its main input; give it once", context)
        kwargs = checked(example, source.model, trains, *(typed[0] if typed else ()))
        note = f"{type(source.model).__name__} is given {', '.join(kwargs)}"
        return replace(source, kwargs=kwargs, assumed=not typed, notes=(*source.notes, note))
    if not typed:
        if source.args or source.kwargs or (isinstance(source.model, nn.Module) and takes(source.model, ())):
            return source
        like = "give the shape of the model's input, like --batch 32,84"
        raise click.UsageError(f"--batch is missing: {like}", context)
    if target.endswith(SUFFIX) and (source.args or source.kwargs):
        return checked(source.reshaped, typed)
    args = tuple(torch.empty(shape, dtype=dtype or torch.float32, device="meta") for shape, dtype in typed)
    return replace(source, args=args, kwargs={}, assumed=False)


def _compared(asked_shape: str | None, loss: Callable[..., Any], step: Workload) -> tuple[Any, tuple[str, ...]]:
    """What the loss compares the output of ``step`` with, and a note where that is assumed; None where with nothing."""
    import torch

    from placer.tracing import trace
    from placer.workload import of_classes, usual_target

    if asked_shape is not None:
        shape, dtype = parse_batch(asked_shape, "--loss-target", "int64" if of_classes(loss) else "float32")
        return torch.empty(shape, dtype=getattr(torch, dtype), device="meta"), ()
    outputs = trace(replace(step, mode="infer", optimizer=None, autocast=None)).outputs
    compared = checked(usual_target, loss, [(output.shape, getattr(torch, output.dtype)) for output in outputs])
    if compared is None:
        return None, ()
    sizes = ",".join(map(str, compared.shape)) or "one value"
    dtype = str(compared.dtype).removeprefix("torch.")
    name = getattr(loss, "__name__", type(loss).__name__)
    return compared, (f"{name} compares the output with {sizes} {dtype} (assumed; --loss-target sets it)",)


def parse_batch(text: str, option: str = "--batch", default: str = "float32") -> Shape:
    """``"4,128:int64"`` -> ``((4, 128), "int64")``; the dtype is the default when left out."""
    sizes, colon, dtype = text.partition(":")
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", sizes, re.ASCII):
        raise ValueError(
            f"{option} {text!r} is not a shape: whole numbers with commas between, like 32,84 or 4,128:int64"
        )
    name = dtype.strip() if colon else default
    if colon and name not in DTYPES:
        raise ValueError(f"{option} {text!r}: unknown dtype {name!r}; accepted: {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if max(shape) > MAX_SIZE:
        raise ValueError(f"{option} {text!r}: {max(shape)} is larger than any tensor")
    return shape, name
