"""Modules of one forward pass, for tests of what a step does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def module(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """A module of these parts, which calls ``forward(self, ...)``."""
    kind = type("Net", (nn.Module,), {"forward": forward})
    net: nn.Module = kind()
    for name, part in parts.items():
        setattr(net, name, part)
    return net
