"""Catches PyTorch functions before they reach the dispatcher: fused ops, device arguments, mixed precision.

PyTorch's autocast depends on the backend's dispatch key, and meta tensors have none. Its two op lists (those of CUDA;
the CPU's keep fewer ops in float32) are therefore applied to functions: matrix products run in the lower precision, ops
that lose accuracy in float32. A region of ``torch.autocast`` takes effect on the kind of device that it names. One for
``cpu`` takes effect on every kind: a script names it after the device it runs on, the CPU while it is traced.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.amp.autocast_mode import autocast
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._device import _device_constructors

from placer.tracing.fused_ops import FUSED, DeviceKind, Surroundings
from placer.tracing.isolation import replaced
from placer.tracing.python_calls import Uncounted
from placer.tracing.recorder import Recorder
from placer.tracing.trace_data import ACCELERATORS

# --- mixed precision --------------------------------------------------------------------------------------------------

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

#: What runs in float32 on one kind of device alone (ATen/autocast_mode.cpp).
_FLOAT32_ON = {
    "cpu": frozenset({
        "fft_fft", "fft_ifft", "fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn", "fft_rfft", "fft_irfft", "fft_rfft2",
        "fft_irfft2", "fft_rfftn", "fft_irfftn", "fft_hfft", "fft_ihfft", "stft", "view_as_complex", "polar",
        "linalg_cholesky", "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh",
        "linalg_householder_product", "linalg_inv", "linalg_lstsq", "linalg_matrix_rank", "linalg_qr", "linalg_solve",
        "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "cholesky", "cholesky_inverse",
        "cholesky_solve", "geqrf", "inverse", "lu_solve", "orgqr", "ormqr", "pinverse", "qr", "svd", "trace",
        "triangular_solve", "quantile", "nanquantile", "avg_pool3d", "max_pool3d", "adaptive_avg_pool3d",
        "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d", "max_unpool2d", "max_unpool3d",
        "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    }),
    "cuda": frozenset({"rms_norm"}),
}  # fmt: skip


#: A device that no tensor of a trace is on, so that torch's own state of its autocast has no effect but to be read.
_NOWHERE = "mtia"

#: What a reader is told of a step with such regions.
_ONLY = "regions of torch.autocast for {0} take effect on {0} only"


class Autocast:
    """Casts the arguments of functions as autocast does on a ``kind`` of device.

    Regions are followed by torch's own state, which ``watching`` has them keep of ``device`` alone. ``whole`` is the
    dtype of a step that runs under autocast as a whole.
    """

    def __init__(self, kind: DeviceKind, whole: torch.dtype | None) -> None:
        self.kind, self.whole = kind, whole
        as_the_cpu = kind.name in ("cpu", ACCELERATORS)
        self.device = _NOWHERE if as_the_cpu else kind.name
        self._float32 = _FLOAT32 | _FLOAT32_ON.get("cpu" if as_the_cpu else kind.name, frozenset())
        #: A parameter is cast once per outermost region, like torch's own.
        self._weights: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        #: Whether the step has checkpointed activations: its backward pass runs parts of forward again.
        self.checkpoints = False

    def cast(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call ``func`` with."""
        name = getattr(func, "__name__", "")
        if name in _LOWER:
            dtype = torch.get_autocast_dtype(self.device)
        elif name in self._float32:
            dtype = torch.float32
            if name in _FLOAT32_ON["cpu"]:
                self.kind.differs("cuda")
        else:
            return args, kwargs
        return tuple(self._apply(a, dtype) for a in args), {k: self._apply(v, dtype) for k, v in kwargs.items()}

    def _apply(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
            return type(value)([self._apply(v, dtype) for v in value])
        if not isinstance(value, Tensor):
            return value
        if not value.dtype.is_floating_point or value.dtype in (dtype, torch.float64):
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(dtype)
        key = id(value), dtype
        if key not in self._weights:
            self._weights[key] = value, value.to(dtype)
        return self._weights[key][1]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the regions that this thread makes and enters."""
        make: Any = autocast.__init__
        enter: Any = autocast.__enter__
        forget = torch.clear_autocast_cache

        def made(
            region: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            # Named after a tensor's device, it is for the one that the step is traced for. No device is asked whether
            # it is there, which may create a context.
            make(region, self.device if device_type == "meta" else device_type, dtype, False, cache_enabled)
            region._enabled = enabled
            # Checkpointing runs forward again as it was: in the state that it has noted of two devices.
            region.placer_again = sys._getframe(2).f_globals is vars(checkpoint)

        def entered(region: Any) -> Any:
            if getattr(region, "placer_again", False):
                return enter(region)
            device = region.device
            if device in ("cpu", self.kind.name):
                region.device = self.device
            if device not in ("cpu", _NOWHERE) and (region._enabled or torch.is_autocast_enabled(self.device)):
                self.kind.differs(device, _ONLY.format(device))
            result = enter(region)
            if region.device != self.device:
                torch.set_autocast_enabled(region.device, False)  # the end of the region restores it
            return result

        def forgotten() -> None:
            self._weights.clear()
            forget()

        infer: Any = checkpoint._infer_device_type

        def inferred(*tensors: Any) -> str:
            infer(*tensors)  # which a step calls
            self.checkpoints = True
            return self.device

        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced(autocast, "__init__", made))
            stack.enter_context(replaced(autocast, "__enter__", entered))
            stack.enter_context(replaced(torch, "clear_autocast_cache", forgotten))
            stack.enter_context(replaced(checkpoint, "_infer_device_type", inferred))
            if self.whole is not None:
                region: Any = autocast(self.device, self.whole)
                region.placer_again = True  # it is none of the step's
                stack.enter_context(region)
            yield


# --- the mode ---------------------------------------------------------------------------------------------------------


def _reentrant(function: Any) -> Callable[..., Any]:
    """A private copy of a Python function of torch that does not offer itself to function modes again.

    A mode is off while it handles a call, so fused ops inside would be missed; with the mode on, the function's own
    check would come straight back here. The copy skips the check.
    """
    never = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _never)
    copy = python_types.FunctionType(function.__code__, {**function.__globals__, **never}, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False


_ATTENTION = _reentrant(F.multi_head_attention_forward)


class FunctionMode(TorchFunctionMode):
    """Active around forward, loss and update."""

    def __init__(self, recorder: Recorder, autocast: torch.dtype | None, kind: DeviceKind) -> None:
        super().__init__()
        self.recorder, self.kind = recorder, kind
        self.autocast = Autocast(kind, autocast)
        self._constructors = _device_constructors()

    @contextlib.contextmanager
    def in_backward(self) -> Iterator[None]:
        """The mode is on in a backward pass where activation checkpointing runs parts of forward again.

        Else it stays off: with it on, torch dies of an interrupt that comes while ``_set_grad_enabled`` imports a
        module. A step under autocast as a whole runs its backward pass outside of it.
        """
        autocast = self.autocast
        if not autocast.checkpoints:
            yield
            return
        on = torch.is_autocast_enabled(autocast.device)
        if autocast.whole is not None:
            torch.set_autocast_enabled(autocast.device, False)
        try:
            with self:
                yield
        finally:
            torch.set_autocast_enabled(autocast.device, on)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        autocast = torch.is_autocast_enabled(self.autocast.device)
        if autocast:
            args, kwargs = self.autocast.cast(func, args, kwargs)
        if func in FUSED and self.recorder.fused and torch._C._functorch.peek_interpreter_stack() is None:
            self.recorder.original = functools.partial(func, *args, **kwargs)
            try:
                with Uncounted():
                    result = FUSED[func](Surroundings(self.recorder, self.kind, autocast), *args, **kwargs)
            finally:
                self.recorder.original = None  # it holds tensors
            if result is not NotImplemented:
                return result
        if type(func) is python_types.FunctionType:
            # A function that offers itself to function modes is entered twice: on its way here, and again below.
            self.recorder.python_calls.count -= 1
            if func is F.multi_head_attention_forward:
                with self:
                    return _ATTENTION(*args, **kwargs)
        if func in _MOVES:
            return _move(self.recorder, func, args, kwargs)
        if func in self._constructors:
            # Never the device asked for: naming one could create its context. The recorder makes the result meta,
            # unless it is small and integer: then its values count as known.
            kwargs = {**kwargs, "device": "cpu"}
        elif "device" in kwargs and kwargs["device"] is not None:
            kwargs = {**kwargs, "device": self.recorder.argument_device}
        elif func is Tensor.tolist:
            self.recorder.log.syncs += self.recorder.on_device(args[0])
        return func(*args, **kwargs)


_MOVES = frozenset({Tensor.to, Tensor.cpu, Tensor.cuda})


def _move(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All tensors are on the one device being priced: a move does nothing, except one to the host by name."""
    tensor, *rest = args
    kwargs = dict(kwargs)
    if func is not Tensor.to:
        recorder.log.syncs += func is Tensor.cpu and recorder.on_device(tensor)
        return tensor
    device = kwargs.pop("device", None)
    kwargs.pop("non_blocking", None)
    if rest and isinstance(rest[0], Tensor):
        rest[0] = rest[0].dtype
    elif rest and (rest[0] is None or isinstance(rest[0], (str, int, torch.device))):
        device = rest.pop(0)
    if device == "cpu" and isinstance(device, str):  # of a tensor, it is the device being priced
        recorder.log.syncs += recorder.on_device(tensor)
    rest = [r for r in rest if isinstance(r, torch.dtype)]
    if isinstance(kwargs.get("other"), Tensor):
        kwargs = {"dtype": kwargs["other"].dtype}
    return func(tensor, *rest, **kwargs) if rest or kwargs else tensor
