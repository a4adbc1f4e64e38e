"""timm's networks, as the releases behind its published benchmark files ran them."""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from placer.calibration.published.networks.not_built import NotBuilt
from placer.calibration.published.networks.torchvision_models import load_torchvision
from placer.calibration.published.steps import PublishedStep

#: Names that timm no longer knows, or leads to another network.
_RENAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "ig_resnext101_32x16d": ("resnext101_32x16d", {}),
    "ig_resnext101_32x32d": ("resnext101_32x32d", {}),
    "ig_resnext101_32x48d": ("resnext101_32x32d", {"base_width": 48}),
    "vit_base_patch16_224_sam": ("vit_base_patch16_224", {}),
    "vit_base_patch32_224_sam": ("vit_base_patch32_224", {}),
    **{f"swin_v2_cr_{v}": (f"swinv2_cr_{v}", {}) for v in (
        "giant_224", "giant_384", "huge_224", "huge_384", "large_224", "large_384", "small_224", "small_384",
        "tiny_384", "tiny_ns_224",
    )},
    **{f"nfnet_f{n}s": (f"nfnet_f{n}", {"act_layer": "silu"}) for n in (0, 3, 5, 6, 7)},
    "convnext_nano_hnf": ("convnext_nano", {"head_norm_first": True, "conv_mlp": True}),
    "convnext_tiny_hnfd": ("convnext_tiny_hnf", {}),
    "regnety_040s_gn": ("regnety_040_sgn", {}),
    "resnetv2_50d_evob": ("resnetv2_50d_evos", {}),
    "densenet264": ("densenet264d", {"stem_type": ""}),
    "vit_base_patch16_reg8_gap_256": ("vit_base_patch16_reg4_gap_256", {"reg_tokens": 8}),
    "vit_medium_patch16_reg4_256": ("vit_medium_patch16_reg4_gap_256", {"global_pool": "token", "class_token": True}),
}  # fmt: skip
_REASONS = {"iabn": "its norms are of another library", "": "timm has no network of this name any more"}


@dataclass(frozen=True)
class Settings:
    """How a benchmark file ran its networks.

    Attributes:
        fused_attention: attention is one fused op; else two products and a softmax.
        half_norms: which norms run in half precision under autocast, which else keeps them in float32: those that
            stand between convolutions, all of timm's own, or none.
        merged: parallel branches and batch norms are merged into one convolution each.
    """

    fused_attention: bool
    half_norms: Literal["none", "convolutional", "all"] = "none"
    merged: bool = False


def settings(step: PublishedStep) -> Settings:
    """The settings behind the benchmark file of ``step``.

    The files do not name them; their times do. From torch 1.13 on, inference of group-normalised networks moves 1.4 to
    1.9 times the GPU's bandwidth if norms were float32, and half of what it took with torch 1.12. With torch 2.9,
    MobileOne's inference takes a fifth to a half of its time with 2.4, which only merged branches explain. Before that
    file, vision transformers took ``nn.LayerNorm``, which has no half-precision form.
    """
    fused = step.attention != "eager"
    found = re.match(r"(\d+)\.(\d+)", step.torch_version or "")
    if step.mode == "train" or found is None or not step.dtype.startswith("amp") or step.source != "timm":
        return Settings(fused)
    version = int(found[1]), int(found[2])
    halves: Literal["none", "convolutional", "all"] = (
        "none" if version < (1, 13) else "convolutional" if version < (2, 9) else "all"
    )
    return Settings(fused, halves, merged=version >= (2, 9))


def model(name: str, size: tuple[int, ...], how: Settings) -> nn.Module:
    """An untrained network for images of ``size`` (height, width).

    Raises:
        NotBuilt: timm is not installed, or does not know the network.
    """
    load_torchvision()
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise NotBuilt(f"timm is not installed ({error}): pip install timm torchvision") from error
    known, arguments = _RENAMED.get(name, (name, {}))
    if not timm.is_model(known) and known not in timm.models._registry._deprecated_models:
        raise NotBuilt(f"timm:{name}: {next(reason for mark, reason in _REASONS.items() if mark in name)}")
    timm.layers.set_fused_attn(how.fused_attention)
    try:
        built = _created(timm, known, size, arguments)
    finally:
        timm.layers.set_fused_attn(True)
    convnext = isinstance(built, timm.models.convnext.ConvNeXt)
    norms: list[Any] = [m for m in built.modules() if isinstance(m, (nn.LayerNorm, nn.GroupNorm))]
    for norm in norms:
        between_products = type(norm) is timm.layers.LayerNorm and not convnext
        norm._fast_norm = how.half_norms == "all" or (how.half_norms == "convolutional" and not between_products)
    if how.merged:
        built = timm.utils.reparameterize_model(built.eval(), inplace=True)
    return built


@contextlib.contextmanager
def in_half_precision() -> Iterator[None]:
    """Trace timm's half-precision norms as such.

    They switch autocast off around themselves, which a trace does not see. Autocast has no list for the ops underneath.
    """
    with contextlib.ExitStack() as stack:
        for home in ("timm.layers.norm", "timm.layers.norm_act"):
            module = importlib.import_module(home)
            stack.enter_context(mock.patch.object(module, "fast_layer_norm", _layer_norm))
            stack.enter_context(mock.patch.object(module, "fast_group_norm", _group_norm))
        yield


def _created(timm: Any, name: str, size: Sequence[int], arguments: dict[str, Any]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm tells of each renamed network
        built: nn.Module = timm.create_model(name, pretrained=False, **arguments)
        given = getattr(built, "default_cfg", {}).get("input_size", (3, 0, 0))[-2:]
        if tuple(given) != tuple(size):
            with contextlib.suppress(TypeError):  # a network for images of any size takes no img_size
                built = timm.create_model(name, pretrained=False, **arguments, img_size=tuple(size))
    return built


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return torch.native_layer_norm(_half(x), shape, _half(weight), _half(bias), eps)[0]


def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    count, channels, *area = x.shape
    half = _half(x).contiguous()
    return torch.native_group_norm(
        half, _half(weight), _half(bias), count, channels, math.prod(area), groups, eps
    )[0]


def _half(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.to(torch.float16)
