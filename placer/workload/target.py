"""TARGET of the command line -> a model or a job, with the inputs that it comes with.

- ``package.module:attribute`` or ``file.py:attribute``: an ``nn.Module`` or ``Job`` instance, a class or a factory; the
  last two are called, with the literals in brackets behind the name.
- ``hf:NAME``: a model of transformers, built from its configuration (see ``pretrained``).
- ``file.pt2``: a program saved by ``torch.export.save``, with the example it was exported with. torch unpickles such a
  file: it is code like any other target.

Large weights get no random numbers, and no weights are downloaded: a model's price depends on its shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from placer.errors import TargetError, first_line
from placer.nest import map_nest, tensors
from placer.workload import pretrained
from placer.workload.job import Job
from placer.workload.named import Named, find
from placer.workload.undrawn import Undrawn

SUFFIX = ".pt2"
FORM = "TARGET is package.module:attribute, file.py:attribute, hf:NAME or file.pt2"
#: Images of the batch that is assumed where nobody gave one.
IMAGES = 32


@dataclass(frozen=True)
class Target:
    """What a command line names.

    ``args`` and ``kwargs`` are the inputs that it comes with, both empty where only the user knows them. ``assumed``
    tells that they are a usual batch, and no part of the target. ``draw`` gives the weights the random numbers that
    they have not got. ``notes`` are for the readers of a price.
    """

    model: nn.Module | Job
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    assumed: bool = False
    draw: Callable[[], None] | None = None
    notes: tuple[str, ...] = ()

    def reshaped(self, shapes: Sequence[tuple[tuple[int, ...], torch.dtype | None]]) -> Target:
        """With inputs of other shapes in the order of the tensors there; a dtype None stays as it is.

        Raises ValueError where they are not as many.
        """
        inputs = list(tensors((self.args, self.kwargs)))
        if len(inputs) != len(shapes):
            shown = ", ".join(",".join(map(str, tensor.shape)) or "a scalar" for tensor in inputs)
            raise ValueError(f"--batch is given {len(shapes)} times, and the program takes {len(inputs)}: {shown}")
        others = iter(
            [
                torch.empty(shape, dtype=dtype or tensor.dtype, device="meta")
                for tensor, (shape, dtype) in zip(inputs, shapes, strict=True)
            ]
        )
        args, kwargs = map_nest(
            lambda leaf: next(others) if isinstance(leaf, Tensor) else leaf, (self.args, dict(self.kwargs))
        )
        return replace(self, args=args, kwargs=kwargs)


def load_target(target: str, *, train: bool = False) -> Target:
    """The model or job that a text names; ``train`` is for an exported one, see ``load_exported``.

    Raises TargetError, with the reason in one line.
    """
    if target.startswith(pretrained.PREFIX):
        with Undrawn() as undrawn:
            model, notes = pretrained.build(target.removeprefix(pretrained.PREFIX))
        return Target(model, draw=undrawn.draw, notes=notes)
    if target.endswith(SUFFIX):
        return load_exported(target, train=train)
    with Undrawn() as undrawn:
        named = find(target, FORM)
        made = _as_model(named)
    images = _images(named, made)
    return Target(made, images, assumed=bool(images), draw=undrawn.draw)


def load_exported(target: str, *, train: bool = False) -> Target:
    """The model in a file, and the inputs it was exported with, if the file has them.

    Exporting fixes what training changes (dropout, batch norm), so ``train`` only sets the ``training`` flag. Raises
    TargetError, with the reason in one line.
    """
    path = Path(target)
    if not path.is_file():
        raise TargetError(f"there is no file {path}; an exported program is written by torch.export.save")
    try:
        program = torch.export.load(path)
        model = program.module()
    except Exception as error:  # the boundary to a file anybody may have written: whatever is wrong is one line
        raise TargetError(f"{path} is not a program that torch.export.load reads: {first_line(error)}") from error
    for part in model.modules():
        part.training = train  # .train() and .eval() of an exported program raise
    args, kwargs = program.example_inputs or ((), {})
    return Target(model, tuple(args), dict(kwargs))


def _as_model(named: Named) -> nn.Module | Job:
    value = named.value
    if isinstance(value, (nn.Module, Job)):
        if named.written:
            raise TargetError(f"{named.text}: a {type(value).__name__} is there already; name it without brackets")
        return value
    if not callable(value):
        kind = type(value).__name__
        raise TargetError(f"{named.text} is a {kind}, not an nn.Module, a placer.Job, a class or a factory of one")
    # torchvision downloads the weights of a backbone where it is not told otherwise.
    bare = "weights_backbone" in named.parameters and "weights_backbone" not in named.kwargs
    made = named.call(weights_backbone=None) if bare else named.call()
    if not isinstance(made, (nn.Module, Job)):
        raise TargetError(f"{named.text} returned a {type(made).__name__}, not an nn.Module or a placer.Job")
    return made


# --- the batch of a network for images --------------------------------------------------------------------------------


def _images(named: Named, made: nn.Module | Job) -> tuple[Tensor, ...]:
    """Images of the size that published weights of a network take; nothing where nothing tells it."""
    if isinstance(made, Job):
        return ()
    size = _crop_size(named)
    if size is not None:
        return (torch.empty((IMAGES, 3, size, size), device="meta"),)
    config = getattr(made, "default_cfg", None)  # of timm
    if isinstance(config, Mapping) and len(config.get("input_size") or ()) == 3:
        return (torch.empty((IMAGES, *config["input_size"]), device="meta"),)
    return ()


def _crop_size(named: Named) -> int | None:
    """The side of the images that torchvision's registry has for a builder, which needs no download."""
    package = named.module.__name__
    while package:
        registry = getattr(sys.modules.get(package), "get_model_weights", None)
        if callable(registry):
            break
        package = package.rpartition(".")[0]
    else:
        return None
    try:
        size = registry(named.value).DEFAULT.transforms.keywords["crop_size"]
    except Exception:  # noqa: BLE001 - a builder without weights, or those of no classifier: whatever the registry raises
        return None
    return size if isinstance(size, int) else None
