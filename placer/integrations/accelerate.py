"""Hugging Face accelerate: all arguments of ``Accelerator``, with the answer among them.

>>> accelerator = Accelerator(**accelerator_args(model, batch, optimizer=optimizer))
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from accelerate import Accelerator

import placer
from placer import machine
from placer.integrations import loops


def accelerator_args(model: torch.nn.Module, batch: Any, **options: Any) -> dict[str, Any]:
    """The arguments of ``Accelerator`` among ``options``, with ``cpu`` as it is where ``model`` finishes first.

    Nothing is moved: ``prepare`` does that. Call this before the first ``Accelerator``: the process keeps the device it
    is made for. accelerate knows accelerators by their kind, so one that is not the process's current one becomes that.
    A ``cpu`` of your own stays, and so does ``mixed_precision="fp16"``, which accelerate runs on a GPU only: then
    nothing is predicted. Else the decision is an INFO record of the logger ``placer``.

    Args:
        model: the model, before ``prepare``.
        batch: what the model is called with: a mapping by keyword, a tuple by position.
        options: arguments of ``Accelerator``, which are returned, and of ``placer.choose``, which are not. With
            ``mixed_precision="bf16"`` a step with that autocast is priced.

    Raises ValueError, TypeError for a wrong argument.
    """
    names = inspect.signature(Accelerator.__init__).parameters
    arguments = {name: value for name, value in options.items() if name in names}
    workload = {name: value for name, value in options.items() if name not in names}
    precision = str(getattr(arguments.get("mixed_precision"), "value", arguments.get("mixed_precision")))
    if "cpu" in arguments or precision == "fp16":
        loops.keep(f"cpu={arguments['cpu']!r}" if "cpu" in arguments else "mixed_precision='fp16', for a GPU,")
        return arguments
    if precision == "bf16":
        workload.setdefault("autocast", torch.bfloat16)
    device = placer.choose(model, batch, move=False, **workload).device
    if device.index is not None and machine.current_device(device.type) != machine.normal_device(str(device)):
        torch.get_device_module(device).set_device(device)  # accelerate takes no number, but the current one
    return {**arguments, "cpu": device.type == "cpu"}
