"""Which op of a step the CPU has no kernel for. Torch itself is asked: it runs the op on a few elements.

Kernels are missing for an op as a whole (one of a library for CUDA), and for dtypes that few kernels are written for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from placer.tracing.operators import Call, tensors_in
from placer.tracing.trace_data import MissingKernel, dtype_name

#: Dtypes that kernels are missing for in practice, each with one of its kind that has them.
STAND_INS: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
    **{dtype: torch.float32 for name, dtype in vars(torch).items() if name.startswith("float8_")},
}
_RARE = frozenset(map(dtype_name, STAND_INS))
#: The sizes that an op is tried with: the largest of a tensor (None: as they are), and the most elements in all.
#: One element is not enough: some ops return before they look at the dtype.
_SIZES = ((None, 4_096), (4, 65_536), (16, 65_536), (64, 65_536))


class CpuKernels:
    """Looks at the ops of one step as they come; ``missing`` is the first that the CPU cannot run."""

    def __init__(self) -> None:
        self.missing: MissingKernel | None = None
        self._checked: set[Hashable] = set()

    def check(self, call: Call, layer: Callable[[], str]) -> None:
        """Note an operator that has no kernel for the CPU, or none for the dtypes of this call."""
        if self.missing is not None:
            return
        if not _has_kernel(call.func):
            self.missing = MissingKernel(call.info.name, "", layer())
            return
        if call.info.view or _RARE.isdisjoint([spec.dtype for spec in call.inputs]):
            return
        key = call.func, call.inputs, call.plain
        if key not in self._checked:
            self._checked.add(key)
            self._check_dtypes(call.info.name, call.func, call.args, call.kwargs, layer)

    def check_function(self, function: functools.partial[Any], layer: Callable[[], str]) -> None:
        """Note a call of a function of torch where the CPU has no kernel for its dtypes.

        Its tensors are never cut: recurrent layers do not look whether their weights go together, and would read past
        the end of those that do not.
        """
        if self.missing is None:
            name = function.func.__name__
            self._check_dtypes(name, function.func, function.args, function.keywords, layer, _SIZES[:1])

    def _check_dtypes(
        self,
        name: str,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        layer: Callable[[], str],
        sizes: tuple[tuple[int | None, int], ...] = _SIZES,
    ) -> None:
        tensors = tensors_in(args, kwargs)
        rare = [tensor.dtype for tensor in tensors if tensor.dtype in STAND_INS]
        if not rare or any(tensor.is_nested or tensor.layout is not torch.strided for tensor in tensors):
            return
        # Sizes of none and of one count as they are: ops return early.
        shown = []
        for tensor in tensors:
            few = [min(size, 2) for size in tensor.shape]
            shown.append((tensor.dtype, *few))
        key = func, *shown, *[value for value in (*args, *kwargs.values()) if isinstance(value, (bool, str))]
        if key not in _lacking:
            _lacking[key] = _lacks(func, tensors, args, kwargs, sizes)
        if _lacking[key]:
            self.missing = MissingKernel(name, dtype_name(rare[0]), layer())


#: Whether a kernel is missing, by what decides on the kernel: the op, its flags, dtypes and dimensions.
_lacking: dict[Hashable, bool] = {}


@functools.lru_cache(maxsize=8192)
def _has_kernel(func: Any) -> bool:
    """Whether an operator has a kernel for the CPU, or is made of others that may have."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), "CPU"))


def _lacks(
    func: Callable[..., Any],
    tensors: list[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    sizes: tuple[tuple[int | None, int], ...],
) -> bool:
    """Whether ``func`` refuses these dtypes, and takes those that stand in for them; False where nothing tells.

    It runs on the first of ``sizes`` that it takes.
    """
    floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()}
    # Of a mixture of dtypes every device may refuse that it is one.
    refusal = RuntimeError if len(floating) < 2 else NotImplementedError
    for largest, most_elements in sizes:
        if sum(_cut(tensor, largest).numel() for tensor in tensors) > most_elements:
            continue
        if _error(func, args, kwargs, largest, stand_in=True) is None:
            return isinstance(_error(func, args, kwargs, largest, stand_in=False), refusal)
    return False


def _error(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], largest: int | None, *, stand_in: bool
) -> Exception | None:
    """What ``func`` raises on the CPU for ``_reduced`` arguments. Draws nothing from torch's generator."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            func(*_reduced(args, largest, stand_in), **_reduced(kwargs, largest, stand_in))
    except Exception as error:  # noqa: BLE001 - an op may refuse what is left of its arguments in any way
        return error
    return None


def _reduced(value: Any, largest: int | None, stand_in: bool) -> Any:
    """An argument, or a container of them, for the CPU: sizes and numbers are at most ``largest`` (None: as they are).

    ``stand_in``: dtypes that may lack kernels are replaced. Tensors are zeros, but for matrices of floating numbers:
    those are the identity, which has an inverse and factors.
    """
    if isinstance(value, Tensor):
        dtype = STAND_INS.get(value.dtype, value.dtype) if stand_in else value.dtype
        zeros = torch.zeros(_cut(value, largest), dtype=dtype, device="cpu")
        if value.dim() > 1 and (value.is_floating_point() or value.is_complex()):
            zeros.diagonal(dim1=-2, dim2=-1).fill_(1)
        return zeros
    if isinstance(value, torch.dtype):
        return STAND_INS.get(value, value) if stand_in else value
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None
    if type(value) is int and largest is not None:
        return min(value, largest)
    if isinstance(value, (list, tuple)):
        return type(value)([_reduced(item, largest, stand_in) for item in value])
    if isinstance(value, dict):
        return {name: _reduced(item, largest, stand_in) for name, item in value.items()}
    return value


def _cut(tensor: Tensor, largest: int | None) -> torch.Size:
    """The shape of a tensor with no size above ``largest``."""
    return tensor.shape if largest is None else torch.Size([min(size, largest) for size in tensor.shape])
