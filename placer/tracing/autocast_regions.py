"""Regions of ``torch.autocast`` inside a step, as the device sees them that the step is traced for.

A region for ``cuda`` does nothing to meta or CPU tensors, and disables itself where torch finds no CUDA device. Here a
region takes effect on the kind of device that it names. One for ``cpu`` takes effect on every kind: a script names it
after the device it runs on, and that is the CPU while it is traced.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.amp.autocast_mode import autocast

from placer.tracing.autocast import Autocast
from placer.tracing.device_kind import DeviceKind

#: Activation checkpointing, which is not imported here: that takes a second with torch 2.6.
_CHECKPOINTING = "torch.utils.checkpoint"

#: What a reader is told of a step with such regions.
_ONLY = "regions of torch.autocast for {0} take effect on {0} only"


class AutocastRegions:
    """Follows regions while ``watching``; ``now`` casts the arguments of functions where autocast is on.

    ``dtype`` is that of a step that runs under autocast as a whole. ``real``: the step runs on real CPU tensors, to
    which torch itself applies regions for ``cpu``.
    """

    def __init__(self, kind: DeviceKind, dtype: torch.dtype | None, *, real: bool) -> None:
        self.kind, self.real = kind, real
        self.whole = Autocast(dtype, kind.name) if dtype is not None else None
        self._entered: list[Autocast | None] = []
        self._backward = False
        self._checkpoints, self._imported = False, _CHECKPOINTING in sys.modules
        self._casts: dict[torch.dtype, Autocast] = {}  # weights are cast once in nested regions, like the real cache

    @property
    def now(self) -> Autocast | None:
        """What casts arguments at this point of the step; None where autocast is off, as it is in a backward pass."""
        if self._entered:
            return self._entered[-1]
        return None if self._backward else self.whole

    @property
    def checkpoints(self) -> bool:
        """Whether the step may have checkpointed activations: its backward pass runs parts of forward again."""
        return self._checkpoints or (not self._imported and _CHECKPOINTING in sys.modules)

    def _around(self) -> Autocast | None:
        return self._entered[-1] if self._entered else self.whole

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """A backward pass."""
        before, self._backward = self._backward, True
        try:
            yield
        finally:
            self._backward = before

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the regions that this thread makes and enters."""
        make: Any = autocast.__init__
        enter: Any = autocast.__enter__
        leave: Any = autocast.__exit__
        thread = threading.get_ident()

        def elsewhere() -> bool:
            return threading.get_ident() != thread

        def made(
            region: autocast, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:  # fmt: skip
            if elsewhere() or device_type == "cpu":
                make(region, device_type, dtype, enabled, cache_enabled)
            else:
                self._make(make, region, device_type, dtype, enabled, cache_enabled)
            if not region._enabled and sys._getframe(1).f_globals.get("__name__") == _CHECKPOINTING:
                region.placer_same = True  # type: ignore[attr-defined]  # autocast stays as it is around the step

        def entered(region: autocast) -> Any:
            result = enter(region)
            if not elsewhere():
                self._enter(region)
            return result

        def left(region: autocast, *error: Any) -> Any:
            if not elsewhere() and self._entered:
                self._entered.pop()
                if not self._entered:
                    self._casts.clear()
            return leave(region, *error)

        checkpointing = sys.modules.get(_CHECKPOINTING)
        infer: Any = getattr(checkpointing, "_infer_device_type", None)

        def inferred(*tensors: Any) -> Any:
            found = infer(*tensors)
            if elsewhere():
                return found
            self._checkpoints = True
            # Checkpointing notes the autocast state of the device that the tensors are on, to run forward again in it.
            return self.kind.name if self.kind.name != "cpu" and found in ("cpu", "meta") else found

        anywhere: Any = torch._C._is_any_autocast_enabled

        def enabled_anywhere() -> bool:  # recurrent layers then accept inputs of another dtype than their weights'
            return bool(anywhere()) or (self.now is not None and not elsewhere())

        replaced: list[tuple[Any, str, Any, Any]] = [
            (autocast, "__init__", make, made), (autocast, "__enter__", enter, entered),
            (autocast, "__exit__", leave, left), (torch._C, "_is_any_autocast_enabled", anywhere, enabled_anywhere),
        ]  # fmt: skip
        if infer is not None:
            replaced.append((checkpointing, "_infer_device_type", infer, inferred))
        try:
            for place, name, _, ours in replaced:
                setattr(place, name, ours)
            yield
        finally:
            self._entered.clear()
            for place, name, theirs, _ in replaced:
                setattr(place, name, theirs)

    def _make(
        self, make: Callable[..., None], region: autocast, device_type: str, dtype: torch.dtype | None, enabled: bool,
        cache_enabled: bool | None,
    ) -> None:  # fmt: skip
        """Make a region without asking whether its device is there: that may create a context."""
        follows = device_type == "meta"  # torch.autocast(x.device.type): the device that the step is traced for
        make(region, self.kind.name if follows else device_type, dtype, False, cache_enabled)
        region._enabled = enabled

    def _enter(self, region: autocast) -> None:
        device, on = region.device, bool(region._enabled)
        if getattr(region, "placer_same", False):
            self._entered.append(self._around())
        elif device == "cpu" and self.real:
            self._entered.append(None)
        elif device in ("cpu", self.kind.name):
            if device != "cpu" and (on or self.now is not None):
                self.kind.differs(device, _ONLY.format(device))
            self._entered.append(self._cast(region.fast_dtype) if on else None)
        else:
            if on or self.now is not None:
                self.kind.differs(device, _ONLY.format(device))
            self._entered.append(self.now)
            torch.set_autocast_enabled(device, False)  # the end of the region restores it

    def _cast(self, dtype: Any) -> Autocast:
        if self.whole is not None and self.whole.dtype == dtype:
            return self.whole
        return self._casts.setdefault(dtype, Autocast(dtype, self.kind.name))
