"""Models that must not be moved: their parts only run, or are only known to their partners, where they are."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from placer import machine
from placer.workload import spread_over_processes

_QUANTIZED = ("torch.ao.nn.quantized", "torch.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def anchor(modules: Sequence[nn.Module]) -> tuple[str, str] | None:
    """The device to which a model is bound, and why; None for one that can be moved."""
    for module in modules:
        for part in module.modules():
            if type(part).__module__.startswith(_QUANTIZED):
                return "cpu", f"{type(part).__name__} is quantized for the CPU"
        spread = spread_over_processes(module)
        if spread is not None:
            return next(iter(_homes(module)), "cpu"), spread
    kept = immovable(modules)
    return None if kept is None or kept[0] is None else (kept[0], kept[1])


def immovable(modules: Sequence[nn.Module]) -> tuple[str | None, str] | None:
    """Where a model begins that was spread over devices by hand, and why it is left so; None for any other.

    One with weights on the meta device, which have no memory that could be moved, is left too; there is no place (None)
    where it has no others.
    """
    for module in modules:
        homes = _homes(module)
        if len(homes) > 1 or "meta" in homes:
            return next((home for home in homes if home != "meta"), None), f"its weights are on {' and '.join(homes)}"
    return None


def _homes(module: nn.Module) -> list[str]:
    """The devices of the parameters, in their order. Buffers go where those are, unless they have no memory."""
    held = (*module.parameters(), *(buffer for buffer in module.buffers() if buffer.is_meta))
    return [machine.normal_device(str(device)) for device in dict.fromkeys(tensor.device for tensor in held)]
