"""Where a workload is now, and what it holds of each device's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from placer import machine
from placer.nest import tensors
from placer.placement import only_device
from placer.pricing import Residence
from placer.workload import Workload


def home(workload: Workload) -> str:
    """The one device that all weights of a workload are on; the CPU where they differ, or are nowhere yet."""
    return device_name(only_device(workload.modules))


def device_name(device: torch.device | None) -> str:
    """A device as profiles name it; the CPU for none, and for tensors without memory."""
    return "cpu" if device is None or device.type == "meta" else machine.normal_device(str(device))


def residence(workload: Workload, fitted_as: Mapping[str, str]) -> Residence:
    """Where a workload is; ``fitted_as`` are the names that a profile has for the devices compared."""
    held: Counter[str] = Counter()
    distinct = {id(tensor): tensor for tensor in _held(workload)}
    for tensor in distinct.values():
        held[machine.normal_device(str(tensor.device))] += tensor.numel() * tensor.element_size()
    if workload.draw is not None:  # no memory of the weights was touched yet
        held.pop("cpu", None)
    return Residence(home=home(workload), held=held, fitted_as=fitted_as)


def _held(workload: Workload) -> Iterator[Tensor]:
    """Every tensor that is there between two steps, and that the steps use."""
    training = workload.mode == "train"
    for module in workload.modules:
        for parameter in module.parameters():
            if not is_lazy(parameter):
                yield parameter
            if training and parameter.grad is not None:
                yield parameter.grad
        yield from (buffer for buffer in module.buffers() if not is_lazy(buffer))
    if training and isinstance(workload.optimizer, torch.optim.Optimizer):
        yield from tensors(dict(workload.optimizer.state))
