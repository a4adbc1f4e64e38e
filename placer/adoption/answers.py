"""Prices what was seen, when the script has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from placer import api
from placer.adoption.seen import SeenModel
from placer.errors import PlacerError, first_line
from placer.explanation import Explanation
from placer.workload import make_workload, optimizer_classes


@dataclass(frozen=True)
class Answer:
    """What one model would cost on each device; without ``explanation``, ``reason`` says why that is not known."""

    seen: SeenModel
    explanation: Explanation | None = None
    reason: str = ""

    @property
    def home(self) -> str:
        """The device it ran on, as explanations name it."""
        device = torch.device(self.seen.device)
        return device.type if device.index in (None, 0) else f"{device.type}:{device.index}"

    @property
    def steps(self) -> int | None:
        """Steps of this run, as far as anybody counted them: those of an optimizer."""
        return self.seen.step_count or None


def answer(seen: SeenModel, profile: Any, what_if: str | None, *, advice: bool = False) -> Answer:
    """Price a model on what it ran on most. Raises nothing."""
    if not seen.inputs:
        return Answer(seen, reason="no inputs of it could be seen")
    reason = seen.refused
    for model in (seen.copy, seen.module()):
        if model is None:
            continue
        try:
            return Answer(seen, _explained(seen, model, profile, what_if, advice))
        except PlacerError as error:
            reason = first_line(error)
        except Exception as error:  # noqa: BLE001 - the script has ended well; one model without a price is one line
            reason = f"{type(error).__name__}: {first_line(error)}"
    return Answer(seen, reason=reason or "it is gone, and could not be copied while it was there")


def _explained(seen: SeenModel, model: nn.Module, profile: Any, what_if: str | None, advice: bool) -> Explanation:
    """By the copy without values first: a model that still lives is asked only where a step must read values."""
    inputs = seen.usual
    optimizer: Any = seen.optimizer if model is seen.copy else None
    if optimizer is None and seen.optimizer is not None:
        name = type(seen.optimizer).__name__.lower()
        optimizer = name if name in optimizer_classes() else None
    example = inputs.kwargs if inputs.kwargs and not inputs.args else inputs.args
    if inputs.args and inputs.kwargs:
        model, example = _Called(model), (inputs.args, inputs.kwargs)
    workload = make_workload(
        model, example=example, mode=seen.mode, optimizer=optimizer, steps=seen.step_count or None, data=inputs.data,
        autocast=inputs.autocast,
    )  # fmt: skip
    return api.explain_workload(workload, None, "keep", profile, what_if, advice=advice)


class _Called(nn.Module):
    """A model that is called with positional and keyword inputs at once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.__name__ = type(model).__name__  # what explanations call it

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.model(*args, **kwargs)
