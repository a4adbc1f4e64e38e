"""Training and evaluation mode, which a library switches once for many steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def quick_switch(module: nn.Module, switch: Callable[[bool], Any]) -> Callable[[bool], None]:
    """What sets the flags that ``switch`` sets, without a walk through the modules: inside a step it costs nothing.

    ``switch`` is ``module.train``, or a library's own way to it. It is called with True, then with False.
    """
    flags = {}
    for training in (True, False):
        switch(training)
        flags[training] = [(vars(part), part.training) for part in module.modules()]

    def quick(training: bool) -> None:
        for held, value in flags[training]:
            held["training"] = value

    return quick
