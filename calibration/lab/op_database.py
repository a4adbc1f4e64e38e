"""The ops that torch tests itself with, at sizes that take a CPU's time.

torch's samples are tiny. Most of their shapes are made of a few constants of its modules, which are set to larger ones
here, so that what must fit together still does. Samples that stay as they are get more rows: every tensor with as many
rows as the first one is repeated.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db as op_db
from torch.utils._python_dispatch import TorchDispatchMode

from placer.nest import map_nest, tensors
from placer.workload import Workload

#: The constants that shapes of samples are made of, and what torch sets them to.
CONSTANTS = {"L": 20, "M": 10, "S": 5, "XS": 3}
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
#: Elements of the largest tensor, samples of an op that are made, and of these, largest first, those that are tried.
MOST_ELEMENTS, SAMPLES, TRIED = 1 << 23, 16, 3


class Op(nn.Module):
    """An op of the database as a layer."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.op(x, *args, **kwargs)


@dataclass(frozen=True)
class Sized:
    """One op at one size: a step of its forward pass, or of both."""

    name: str
    factor: float
    workload: Workload
    elements: int


class _Limited(TorchDispatchMode):
    """Refuses to make a tensor that is too large."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shape = args[0] if "empty" in str(func) and args and isinstance(args[0], list | tuple) else ()
        if math.prod(shape) > MOST_ELEMENTS:
            raise MemoryError("too large a sample")
        return func(*args, **(kwargs or {}))


@contextmanager
def _larger(factor: float) -> Iterator[None]:
    """The constants of all of torch's modules of samples times ``factor``."""
    found = [m for name, m in sys.modules.items() if name.startswith("torch.testing._internal") and m is not None]
    changed = [
        (module, name, value)
        for module in found
        for name, value in CONSTANTS.items()
        if getattr(module, name, None) == value
    ]
    try:
        for module, name, value in changed:
            setattr(module, name, max(round(value * factor), 1))
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


def name_of(info: Any) -> str:
    """An op and its variant."""
    return f"{info.name} {info.variant_test_name}".strip()


def sized(info: Any, factor: float, *, repeated: bool = False) -> Sized | None:
    """An op with its constants ``factor`` times as large, or its rows repeated as often; None where none runs."""
    dtype = next((dtype for dtype in DTYPES if dtype in info.supported_dtypes("cpu")), None)
    if dtype is None:
        return None
    learns = info.supports_autograd and dtype.is_floating_point
    samples: list[Any] = []
    try:
        with _larger(1.0 if repeated else factor), _Limited():  # type: ignore[no-untyped-call]
            samples.extend(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=learns), SAMPLES))
    except Exception:  # noqa: BLE001  constants that a sample was not made for
        pass
    whole = [(s.input, s.args, s.kwargs) for s in samples]
    for given in sorted(whole, key=_elements, reverse=True)[:TRIED]:
        given = _with_rows(given, int(factor)) if repeated else given
        try:
            with torch.no_grad():
                info.op(map_nest(_copied, given)[0], *given[1], **given[2])
        except Exception:  # noqa: BLE001  what has no kernel here, or takes no such shapes
            continue
        return Sized(name_of(info), factor, step_of(Op(info.op), given, learns=learns), _elements(given))
    return None


def step_of(op: nn.Module, args: tuple[Any, ...], *, learns: bool) -> Workload:
    """A step of one op, its operands where it runs: forward, and backward where it ``learns``."""
    return Workload(
        model=op,
        modules=(op,),
        args=args,
        kwargs={},
        mode="train" if learns else "infer",
        loss=None,
        optimizer=None,
        data="device",
    )


def _elements(given: Any) -> int:
    return sum(t.numel() for t in tensors(given))


def _copied(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


def _with_rows(given: Any, times: int) -> Any:
    first = next((t for t in tensors(given) if t.dim()), None)
    rows = first.shape[0] if first is not None else 0

    def more(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim() or leaf.shape[0] != rows:
            return leaf
        return leaf.detach().repeat(times, *[1] * (leaf.dim() - 1)).requires_grad_(leaf.requires_grad)

    return map_nest(more, given)
