"""``--loss NAME``: a loss of torch by its name, or a callable of the user's, and what it compares an output with."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from placer.errors import TargetError
from placer.workload.arguments import of_classes, takes
from placer.workload.target import find

FORM = (
    "a loss is a name in torch.nn.functional (cross_entropy), a class of torch.nn (CrossEntropyLoss), "
    "package.module:attribute or file.py:attribute"
)
_OTHERS = ("cross_entropy", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits")


def by_name() -> dict[str, Callable[..., Any]]:
    """The losses of an output and a target: functions of torch.nn.functional, and classes made without arguments."""
    functions: dict[str, Any] = {name: value for name, value in vars(nn.functional).items() if _is_function(name)}
    classes: dict[str, Any] = {name: value for name, value in vars(nn).items() if name.endswith("Loss")}
    losses = {name: value for name, value in functions.items() if takes(value, (None,) * 2)}
    made = {name: kind for name, kind in classes.items() if takes(kind, ()) and takes(kind.forward, (None,) * 3)}
    return {**losses, **made}


def _is_function(name: str) -> bool:
    return name in _OTHERS or (name.endswith("_loss") and not name.startswith("_"))


def parse_loss(text: str) -> Callable[..., Any]:
    """The loss that a text names. Raises ValueError for an unknown name, TargetError for what cannot be imported."""
    if ":" in text:
        named = find(text, FORM)
        made: Callable[..., Any] = named.value
        if isinstance(made, type) or named.written:
            made = named.call()
        if not callable(made) or isinstance(made, type):
            raise TargetError(f"--loss {text} is a {type(made).__name__}, which cannot be called; {FORM}")
        return made
    losses = by_name()
    loss = losses.get(text) or losses.get(f"{text}_loss")
    if loss is None:
        close = difflib.get_close_matches(text.lower(), losses, 3, 0.5)
        hint = f"the closest names are {', '.join(close)}" if close else FORM
        raise ValueError(f"unknown loss {text!r}; {hint}")
    return loss() if isinstance(loss, type) else loss


def usual_target(loss: Callable[..., Any], outputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Tensor | None:
    """What ``loss`` compares the outputs of a model (shape, dtype) with, as zeros; None for a loss that takes nothing.

    That is the index of a class for each row, or else as much as the output. Raises ValueError for several outputs.
    """
    if takes(loss, (None,)) or not takes(loss, (None,) * 2):
        return None
    if len(outputs) != 1:
        raise ValueError(
            f"--loss: the model returns {len(outputs)} tensors, and a loss of torch takes one: give --loss "
            "package.module:attribute or file.py:attribute, a function that takes what the model returns"
        )
    ((shape, dtype),) = outputs
    if of_classes(loss):
        return torch.zeros((shape[0], *shape[2:]) if len(shape) > 1 else (), dtype=torch.int64)
    if loss is nn.functional.multilabel_margin_loss or isinstance(loss, nn.MultiLabelMarginLoss):
        return torch.zeros(shape, dtype=torch.int64)
    return torch.zeros(shape, dtype=dtype)
