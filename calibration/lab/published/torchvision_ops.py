"""torchvision, imported also where its wheel is made for another build of torch, and its compiled ops do not load."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

#: Ops that torchvision's import describes, and that only its compiled library defines.
_COMPILED = ("nms", "qnms")
#: Holds the definitions: they end with the object.
_definitions: list[Any] = []


def load_torchvision() -> None:
    """Import torchvision where it is installed; timm and transformers import it as well.

    Its networks for classification need none of its compiled ops. Raises what its import raises.
    """
    if find_spec("torchvision") is None:
        return
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _COMPILED:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _definitions.append(library)
        import torchvision  # noqa: F401
