"""The loss and the optimizer of a published training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import PublishedStep


def loss_of(step: PublishedStep, device: str) -> Callable[..., Any] | None:
    """Cross-entropy against classes that are on the device already; None: a sum of the outputs.

    A language model predicts a class for each token. The two logits that a token of a question's text gets are summed.
    """
    if step.mode == "infer" or SOURCES[step.source].loss == "sum" or "SQuAD" in step.network:
        return None
    if step.family == "recommender":
        return partial(_binary_cross_entropy, target=torch.zeros(step.batch, 1, device=device))
    texts = len(step.input) == 2
    classes = torch.zeros(math.prod(step.input) if texts else step.batch, dtype=torch.int64, device=device)
    return partial(_cross_entropy, target=classes)


def optimizer_of(step: PublishedStep, model: nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer inside the step, on ``model``'s parameters; None where no update is inside."""
    if step.mode == "infer" or step.optimizer is None:
        return None
    foreach = None if step.foreach else False
    parameters = [p for p in model.parameters() if p.requires_grad]
    if step.optimizer == "sgd momentum":
        nesterov = step.source == "timm"  # what timm calls "sgd"
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=nesterov, foreach=foreach)
    if step.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, foreach=foreach)
    return torch.optim.Adam(parameters, lr=1e-3, foreach=foreach)


def _cross_entropy(output: Any, target: Tensor) -> Tensor:
    named = [output[name] for name in ("prediction_logits", "logits") if isinstance(output, Mapping) and name in output]
    logits = named[0] if named else output[0] if isinstance(output, (tuple, list)) else output
    return F.cross_entropy(logits if logits.dim() == 2 else logits.view(len(target), -1), target)


def _binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, target)
