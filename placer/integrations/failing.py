"""Jobs whose making failed in the user's own code: they have no price, so ``placer.choose`` follows the convention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

import placer


def or_failing(make: Callable[[], placer.Job], modules: Sequence[nn.Module]) -> placer.Job:
    """The job that ``make`` gives; where it raises, one whose step "training" raises the same.

    ``placer.choose`` then falls back with a PlacerWarning, or raises under ``PLACER_STRICT=1``, as for any step that
    cannot be traced. ``modules``: what would run, whose size the convention looks at.
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - boundary: a library runs the user's own code, which may raise anything
        raised = error

    def step(nothing: torch.Tensor) -> None:
        raise raised

    return placer.Job([placer.Part("training", step, example=(torch.empty(0),), modules=modules or nn.Module())])
