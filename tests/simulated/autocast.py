"""Mixed precision on the device: products in the narrow dtype, what loses too much by it in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: As on CUDA, the ops that the tests need.
NARROW = (
    "mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention",
)  # fmt: skip
WIDE = (
    "layer_norm", "softmax.int", "log_softmax.int", "pow.Tensor_Scalar", "exp", "log", "sum", "nll_loss", "mse_loss",
)  # fmt: skip
_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def register() -> list[torch.library.Library]:
    """Let ``torch.autocast("sim")`` work; the registrations live as long as what is returned."""
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    for names, dtype_of in ((NARROW, lambda: torch.get_autocast_dtype("sim")), (WIDE, lambda: torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            library.impl(name, _cast(op, dtype_of), "AutocastPrivateUse1")
    return [rest, library]


def _cast(op: Any, dtype_of: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = dtype_of()

        def cast(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.device.type == "sim":
                return leaf.to(dtype)
            return leaf

        with torch._C._ExcludeDispatchKeyGuard(_KEY):
            return op(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

    return run
