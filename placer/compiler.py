"""What ``torch.compile`` is told of functions of placer that compiled code calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_F = TypeVar("_F", bound=Callable[..., Any])


def never_compiled(function: _F) -> _F:
    """A decorator: wherever it is called, neither the function nor what it calls is compiled."""
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


def called_as_it_is(function: _F) -> _F:
    """A decorator: code that is being compiled is cut before and after a call of the function, as by ``print``."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return never_compiled(function)
