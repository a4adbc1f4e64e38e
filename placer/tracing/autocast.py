"""Mixed precision, as the device sees it that the step is traced for.

PyTorch's autocast depends on the backend's dispatch key, and meta tensors have none. Its two op lists (those of CUDA;
the CPU's keep fewer ops in float32) are therefore applied to functions: matrix products run in the lower precision, ops
that lose accuracy in float32. A region of ``torch.autocast`` for ``cuda`` does nothing to meta or CPU tensors, and
disables itself where torch finds no CUDA device. Here it takes effect on the kind of device that it names. One for
``cpu`` takes effect on every kind: a script names it after the device it runs on, the CPU while it is traced.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.amp.autocast_mode import autocast

from placer.tracing.fused_ops import DeviceKind

_LOWER = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_tbc",
    "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "addmm", "addmv", "addr", "addbmm",
    "baddbmm", "chain_matmul", "einsum", "bilinear", "prelu", "scaled_dot_product_attention", "lstm", "gru",
    "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
})  # fmt: skip
_FLOAT32 = frozenset({
    "softmax", "log_softmax", "layer_norm", "group_norm", "cross_entropy", "nll_loss", "mse_loss", "l1_loss",
    "smooth_l1_loss", "huber_loss", "kl_div", "cosine_similarity", "cosine_embedding_loss", "poisson_nll_loss",
    "binary_cross_entropy_with_logits", "ctc_loss", "triplet_margin_loss", "norm", "cumsum", "cumprod", "prod",
    "sum", "exp", "expm1", "log", "log10", "log1p", "log2", "pow", "__pow__", "__rpow__", "rsqrt", "reciprocal",
    "asin", "acos", "cosh", "sinh", "tan", "erfinv", "softplus", "softmin", "cdist", "dist", "pdist", "renorm",
    "logsumexp",
})  # fmt: skip

#: What more runs in float32 on other kinds of devices than the CPU.
_FLOAT32_ON = {"cuda": frozenset({"rms_norm"})}


class Autocast:
    """Casts the arguments of a function as ``torch.autocast(dtype=dtype)`` would on a ``kind`` of device."""

    def __init__(self, dtype: torch.dtype, kind: str = "cpu") -> None:
        self.dtype = dtype
        self._float32 = _FLOAT32 | _FLOAT32_ON.get(kind, frozenset())
        self._weights: dict[int, tuple[Tensor, Tensor]] = {}  # a parameter is cast once per step, like the real cache

    def cast(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call ``func`` with."""
        name = getattr(func, "__name__", "")
        if name in _LOWER:
            dtype = self.dtype
        elif name in self._float32:
            dtype = torch.float32
        else:
            return args, kwargs
        return tuple(self._apply(a, dtype) for a in args), {k: self._apply(v, dtype) for k, v in kwargs.items()}

    def _apply(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value, dtype)
        if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
            return type(value)([self._apply(v, dtype) for v in value])
        return value

    def _tensor(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if not tensor.dtype.is_floating_point or tensor.dtype in (dtype, torch.float64):
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(dtype)
        cached = self._weights.get(id(tensor))
        if cached is None:
            cached = self._weights[id(tensor)] = (tensor, tensor.to(dtype))
        return cached[1]


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
