"""Mixed precision on meta tensors.

PyTorch's autocast depends on the backend's dispatch key, and meta tensors have none. Its two op lists (those of CUDA;
the CPU's keep fewer ops in float32) are therefore applied to functions: matrix products run in the lower precision, ops
that lose accuracy in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
