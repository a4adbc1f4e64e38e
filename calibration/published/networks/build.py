"""A published step as a workload."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.published.networks import (
    recommender_models,
    recurrent_models,
    timm_models,
    torchvision_models,
    transformers_models,
)
from placer.calibration.published.networks.not_built import NotBuilt
from placer.calibration.published.networks.training import loss_of, optimizer_of
from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import PublishedStep
from placer.workload import Workload

Example = tuple[tuple[Tensor, ...], dict[str, Any]]

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}
_AUTOCAST = {"amp-float16": torch.float16, "amp-bfloat16": torch.bfloat16}
#: NVIDIA's networks that are timm's as well.
_AS_TIMM = {
    "NVIDIA DLE efficientnet-b0 (~timm:efficientnet_b0)": "efficientnet_b0",
    "NVIDIA DLE efficientnet-b4 (~timm:efficientnet_b4)": "efficientnet_b4",
}
_REASONS = {
    "efficientnet-widese": "its squeeze layers are wider than timm's",
    "Transformer-XL": "its memory and relative positions are the source's own code",
    "WaveGlow": "the length of its audio segments is not said",
    "Jasper": "its step may include the preprocessing of audio",
    "QuartzNet": "its step may include the preprocessing of audio",
    "Temporal Fusion": "its inputs are not said",
    "nnU-Net": "its patches overlap by an amount that is not said",
    "ResNet (basic blocks": "its layers are not said",
}


def build(step: PublishedStep, device: str = "meta") -> Workload:
    """The workload of a published step, with its untrained model and its inputs on ``device``.

    ``Workload.optimizer`` is None where no update is inside the step.

    Raises:
        NotBuilt: the network cannot be built here; the message says why.
    """
    with torch.device(device):
        model, (args, kwargs) = _network(step)
    dtype = _DTYPES.get(step.dtype)
    if dtype is not None:
        model = model.to(dtype)
    if step.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    args = tuple(_as_input(tensor, dtype, step.channels_last) for tensor in args)
    if step.mode == "train" and SOURCES[step.source].input_gradient:
        args = tuple(tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in args)
    return Workload(
        target=model,
        modules=(model,),
        args=args,
        kwargs={name: _as_input(tensor, dtype, channels_last=False) for name, tensor in kwargs.items()},
        mode=step.mode,
        loss=loss_of(step, device),
        optimizer=optimizer_of(step, model),
        data=step.copies,
        autocast=_AUTOCAST.get(step.dtype),
    )


def _network(step: PublishedStep) -> tuple[nn.Module, Example]:
    kind, _, name = step.network.partition(":")
    if kind == "torchvision":
        return torchvision_models.model(name), ((torch.empty(step.input),), {})
    if kind == "timm" or step.network in _AS_TIMM:
        model = timm_models.model(_AS_TIMM.get(step.network, name), step.input[-2:], timm_models.settings(step))
        return model, ((torch.empty(step.input),), {})
    if kind == "transformers":
        return transformers_models.model(step, name)
    if step.family == "recurrent":
        return recurrent_models.model(step)
    if step.network.startswith("NeuMF"):
        return recommender_models.model(step)
    reason = next((why for mark, why in _REASONS.items() if mark in step.network), "its layers are not said")
    raise NotBuilt(f"{step.network}: {reason}")


def _as_input(tensor: Tensor, dtype: torch.dtype | None, channels_last: bool) -> Tensor:
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    if channels_last and tensor.dim() == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor
