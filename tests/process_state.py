"""Every switch of the process that a library could leave turned, and a fault at any point inside placer."""

from __future__ import annotations

import contextlib
import gc
import importlib
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from pictures import picture
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import placer

_PLACER = str(Path(placer.__file__).parent)
_CALIBRATION = str(Path(_PLACER).parent / "calibration")
_GENERATOR = 0x20
#: Putting back is what must not fail: a fault in the middle of it is nobody's to survive. The last three are called
#: when a tensor goes or the collector starts, where Python lets nothing raise.
CLEANING_UP = frozenset({"restore", "__exit__", "end_phase", "_freed", "<lambda>", "_before_collection"})


def process_state(*watched: Any) -> dict[str, Any]:
    """Pictures of models, optimizers and random states, and the switches of torch and Python."""
    return {
        **picture(*watched),
        "autocast": [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "default device": str(torch.get_default_device()),
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "function modes": len(_get_current_function_mode_stack()),
        "collector": gc.isenabled(),
        "profiler": sys.getprofile(),
        "warnings": list(warnings.filters),
        "importers": (importlib.import_module,),
        "alarm": signal.getsignal(signal.SIGALRM) if hasattr(signal, "SIGALRM") else None,
    }


class Fault:
    """Counts the functions of placer that are entered, and raises ``error`` in number ``at`` (None: only counts).

    Left out are generators (a fault on resuming one is none in its body) and whatever is called while putting back.
    """

    def __init__(self, error: BaseException | None = None, at: int | None = None) -> None:
        self.error, self.at, self.count = error, at, 0
        self.where = ""
        self._known: dict[CodeType, bool] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[Fault]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield self
        finally:
            sys.settrace(before)
            if self.error is not None:  # it is raised again and again: else it would hold every frame it went through
                self.error.__traceback__ = self.error.__context__ = None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        counts = self._known.get(code)
        if counts is None:
            counts = self._known[code] = code.co_filename.startswith((_PLACER, _CALIBRATION)) and not (
                code.co_flags & _GENERATOR
            )
        if not counts or self._cleaning_up(frame):
            return
        self.count += 1
        if self.count == self.at:
            self.where = f"{Path(code.co_filename).name}:{code.co_name}"
            sys.settrace(None)
            assert self.error is not None
            raise self.error

    def _cleaning_up(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name in CLEANING_UP and code.co_filename.startswith((_PLACER, _CALIBRATION)):
                return True
            frame = frame.f_back
        return False
