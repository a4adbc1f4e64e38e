"""Tensors of the simulated device: computed on the CPU at once, paid for on the device's clock."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from simulated import copies
from simulated.costs import kernel_seconds, tensors_in
from simulated.device import DEVICE
from simulated.memory import Allocation

aten = torch.ops.aten
#: Ops whose result's shape, or whose result on the host, is only known once the device has run.
WAITING = frozenset(
    {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero"}
)
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
#: Ops whose index operands may stay in host memory, as on real devices.
HOST_INDICES = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})


class SimTensor(Tensor):
    """A tensor on ``sim``: ``numbers`` is its content, in host memory, ``allocation`` its share of the device's."""

    numbers: Tensor
    allocation: Allocation

    @staticmethod
    def __new__(cls, inner: Tensor, allocation: Allocation) -> SimTensor:
        result: SimTensor = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device("sim", 0),
        )  # fmt: skip
        result.numbers = inner
        result.allocation = allocation
        return result

    __torch_function__ = torch._C._disabled_torch_function_impl

    # With these two, Module.to swaps a parameter's content and keeps the Parameter object, as on built-in devices.
    def __tensor_flatten__(self) -> tuple[list[str], Allocation]:
        return ["numbers"], self.allocation

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], allocation: Allocation, size: Any, stride: Any) -> SimTensor:
        return SimTensor(inner["numbers"], allocation)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"sim:{self.numbers!r}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def fresh(inner: Tensor) -> SimTensor:
    """A new tensor with memory of its own."""
    return SimTensor(inner, DEVICE.memory.take(inner.untyped_storage().nbytes()))


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op that has a tensor of this device among its operands."""
    name = func._overloadpacket.__name__
    if func is aten.copy_.default:
        return copies.copy_into(args[0], args[1], non_blocking=bool((*args, False)[2]))
    if name == "_to_copy" and torch.device(kwargs.get("device") or "sim").type != "sim":
        return copies.copy_out(args[0], kwargs)
    if torch.Tag.inplace_view in func.tags:
        return _reshape_in_place(func, args, kwargs)
    if "device" in kwargs:
        kwargs = {**kwargs, "device": None if kwargs["device"] is None else torch.device("cpu")}
    operands = tensors_in((args, tuple(kwargs.values())))
    if name not in HOST_INDICES:
        _check_devices(name, operands)
    if name in WAITING:
        DEVICE.synchronize()
    plain = _mapped(_numbers, args)
    plain_kwargs = {key: _mapped(_numbers, value) for key, value in kwargs.items()}
    out = _computed(func, name, plain, plain_kwargs)
    _pay(func, plain, plain_kwargs, operands, out)
    mine = [operand for operand in operands if isinstance(operand, SimTensor)]
    return _mapped(lambda leaf: _wrapped(leaf, mine) if isinstance(leaf, Tensor) else leaf, out)


def _computed(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dtype = args[0].dtype if args and isinstance(args[0], Tensor) else None
    if name not in PRODUCTS or dtype not in (torch.float16, torch.bfloat16):
        return func(*args, **kwargs)
    if dtype == torch.float16:  # a device lacks a dtype here and there
        raise NotImplementedError(f"\"{name}\" not implemented for 'Half' on sim")
    # In float32, as many CPUs take a hundred times longer for narrow products.
    return func(*(arg.float() if isinstance(arg, Tensor) else arg for arg in args), **kwargs).to(dtype)


def _pay(func: Any, args: Any, kwargs: Any, operands: list[Tensor], out: Any) -> None:
    """The host's time for every op, the device's for those that compute something."""
    inputs = [_numbers(t) for t in operands]
    spec = DEVICE.spec
    if func.is_view or func is aten.detach.default or func is aten._unsafe_view.default or not tensors_in(out):
        DEVICE.touch()
        DEVICE.clock.spend(spec.view)
        return
    seconds = kernel_seconds(
        func, args, kwargs, inputs, out, flops=spec.flops, flops_float64=spec.flops_float64,
        bytes_per_second=spec.bytes_per_second,
    )  # fmt: skip
    DEVICE.launch(seconds, func._overloadpacket.__name__)


def _reshape_in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``transpose_`` and its like: on the content, and on the tensor that stands for it."""
    func(*_mapped(_numbers, args), **kwargs)
    with no_dispatch():
        func(*args, **kwargs)
    DEVICE.clock.spend(DEVICE.spec.view)
    return args[0]


def _wrapped(result: Tensor, operands: list[SimTensor]) -> SimTensor:
    """The operand itself where an op returns it, a tensor on the same memory for a view, else a new one."""
    address = result.untyped_storage().data_ptr()
    for operand in operands:
        if operand.numbers is result:
            return operand
    for operand in operands:
        if address and operand.numbers.untyped_storage().data_ptr() == address:
            return SimTensor(result, operand.allocation)
    return fresh(result)


def _mapped(function: Any, nest: Any) -> Any:
    """``function`` of every leaf of an op's operands or results."""
    if isinstance(nest, (list, tuple)):
        return type(nest)(_mapped(function, item) for item in nest)
    return function(nest)


def _numbers(leaf: Any) -> Any:
    return leaf.numbers if isinstance(leaf, SimTensor) else leaf


def _check_devices(name: str, operands: list[Tensor]) -> None:
    for operand in operands:
        if not isinstance(operand, SimTensor) and operand.dim() > 0:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {name} got one on sim and one on {operand.device}"
            )
