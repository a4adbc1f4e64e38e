"""torchvision's networks, by their constructors' names."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from placer.calibration.published.networks.not_built import NotBuilt

#: Ops that torchvision's import describes, and that only its compiled library defines.
_COMPILED = ("nms", "qnms")
#: Holds the definitions: they end with the object.
_definitions: list[Any] = []


def load_torchvision() -> None:
    """Make torchvision importable, where it is installed, also if its compiled ops cannot be loaded.

    They cannot where its wheel is made for another build of torch. timm and transformers import torchvision as well.
    """
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _COMPILED:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _definitions.append(library)
        importlib.import_module("torchvision")


def model(name: str) -> nn.Module:
    """An untrained network by its constructor's name, such as ``resnet50``.

    Raises:
        NotBuilt: torchvision is not installed, or has no such network.
    """
    load_torchvision()
    try:
        models = importlib.import_module("torchvision.models")
    except ImportError as error:
        raise NotBuilt(f"torchvision is not installed ({error}): pip install torchvision") from error
    constructor = getattr(models, name, None)
    if constructor is None:
        raise NotBuilt(f"torchvision has no network {name!r}")
    built: nn.Module = constructor(weights=None)
    return built
