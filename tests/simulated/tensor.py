"""Tensors of the simulated device: computed on the CPU at once, paid for on the device's clock."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map_only

from simulated import copies
from simulated.costs import PRODUCTS, kernel_seconds
from simulated.device import SimulatedDevice, device_of
from simulated.memory import Allocation

aten = torch.ops.aten
#: Ops whose result's shape, or whose result on the host, is only known once the device has run.
WAITING = frozenset(
    {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "is_nonzero"}
)
#: Ops whose index operands may stay in host memory, as on real devices.
HOST_INDICES = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})


class SimTensor(Tensor):
    """A tensor on ``sim``: ``numbers`` is its content, in host memory, ``allocation`` its share of the device's.

    Torch's C++ side knows one device of a Python backend only. So to it, all tensors are on the first; which one they
    are on (``owner``) is said here.
    """

    numbers: Tensor
    allocation: Allocation
    owner: SimulatedDevice

    @staticmethod
    def __new__(cls, inner: Tensor, allocation: Allocation, owner: SimulatedDevice) -> SimTensor:
        block = inner.layout is torch.strided  # and not sparse
        place = {"strides": inner.stride(), "storage_offset": inner.storage_offset()} if block else {}
        result: SimTensor = Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, layout=inner.layout, device=torch.device("sim", 0), **place
        )
        result.numbers = inner
        result.allocation = allocation
        result.owner = owner
        return result

    @property
    def device(self) -> torch.device:
        return torch.device("sim", self.owner.index)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """As usual; from one device to another, which torch takes for the same, through a new tensor."""
        given = [*args, *kwargs.values()]
        target = next((a for a in given if isinstance(a, (str, torch.device, Tensor))), None)
        target = target.device if isinstance(target, Tensor) else target
        if target is None or torch.device(target).type != "sim":
            return super().to(*args, **kwargs)
        moved = self if device_of(target) is self.owner else _Across.apply(self, device_of(target).index)
        # What torch takes for the device of all.
        here = torch.device("sim", 0)
        args = tuple(here if isinstance(a, (str, torch.device)) else a for a in args)
        return Tensor.to(moved, *args, **{**kwargs, **({"device": here} if "device" in kwargs else {})})

    __torch_function__ = torch._C._disabled_torch_function_impl

    # With these two, Module.to swaps a parameter's content and keeps the Parameter object, as on built-in devices.
    def __tensor_flatten__(self) -> tuple[list[str], tuple[Allocation, SimulatedDevice]]:
        return ["numbers"], (self.allocation, self.owner)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], place: tuple[Allocation, SimulatedDevice], size: Any, stride: Any
    ) -> SimTensor:
        return SimTensor(inner["numbers"], *place)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"sim:{self.numbers!r}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


def fresh(inner: Tensor, owner: SimulatedDevice) -> SimTensor:
    """A new tensor with memory of its own."""
    return SimTensor(inner, owner.memory.take(inner.untyped_storage().nbytes()), owner)


class _Across(torch.autograd.Function):
    """A copy on another device of this kind."""

    @staticmethod
    def forward(context: Any, source: SimTensor, index: int) -> SimTensor:
        context.index = source.owner.index
        with no_dispatch():
            target = fresh(torch.empty_like(source.numbers), device_of(index))
        copies.copy_into(target, source, non_blocking=True)
        return target

    @staticmethod
    def backward(context: Any, gradient: SimTensor) -> tuple[SimTensor, None]:
        return _Across.apply(gradient, context.index), None


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op that has a tensor of these devices among its operands."""
    name = func._overloadpacket.__name__
    if func is aten.copy_.default:
        return copies.copy_into(args[0], args[1], non_blocking=bool((*args, False)[2]))
    if name == "_to_copy" and torch.device(kwargs.get("device") or "sim").type != "sim":
        return copies.copy_out(args[0], kwargs)
    if torch.Tag.inplace_view in func.tags:
        return _reshape_in_place(func, args, kwargs)
    operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    mine = [operand for operand in operands if isinstance(operand, SimTensor)]
    owner = mine[0].owner
    if "device" in kwargs:
        given = kwargs["device"]
        kwargs = {**kwargs, "device": None if given is None else torch.device("cpu")}
        if given is not None and torch.device(given).index is not None and torch.device(given).type == "sim":
            owner = device_of(given)
    elif name not in HOST_INDICES:
        _check_devices(name, operands, owner)
    if name in WAITING:
        owner.synchronize()
    plain, plain_kwargs = _plain(args), _plain(kwargs)
    out = _computed(func, name, plain, plain_kwargs, owner)
    _pay(func, plain, plain_kwargs, operands, out, owner)
    return tree_map_only(Tensor, lambda leaf: _wrapped(leaf, mine, owner), out)


def _computed(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], owner: SimulatedDevice) -> Any:
    dtype = args[0].dtype if args and isinstance(args[0], Tensor) else None
    if name not in PRODUCTS or dtype not in (torch.float16, torch.bfloat16):
        return func(*args, **kwargs)
    if dtype == torch.float16 and not owner.spec.flops_float16:  # a device lacks a dtype here and there
        raise NotImplementedError(f"\"{name}\" not implemented for 'Half' on sim")
    # In float32, as many CPUs take a hundred times longer for narrow products.
    wide = func(*tree_map_only(Tensor, Tensor.float, args), **kwargs)
    return tree_map_only(Tensor, lambda leaf: leaf.to(dtype), wide)


def _pay(func: Any, args: Any, kwargs: Any, operands: list[Tensor], out: Any, owner: SimulatedDevice) -> None:
    """The host's time for every op, the device's for those that compute something."""
    spec = owner.spec
    if out is None and func._schema.is_mutable:  # a foreach op writes into its first operand and returns nothing
        out = args[0]
    computes = any(isinstance(leaf, Tensor) for leaf in tree_leaves(out))
    if func.is_view or func in (aten.detach.default, aten._unsafe_view.default) or not computes:
        owner.touch()
        owner.clock.spend(spec.view)
        return
    owner.launch(kernel_seconds(spec, func, args, kwargs, _plain(operands), out), func._overloadpacket.__name__)


def _reshape_in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``transpose_`` and its like: on the content, and on the tensor that stands for it."""
    func(*_plain(args), **kwargs)
    with no_dispatch():
        func(*args, **kwargs)
    owner = args[0].owner
    owner.clock.spend(owner.spec.view)
    return args[0]


def _wrapped(result: Tensor, operands: list[SimTensor], owner: SimulatedDevice) -> SimTensor:
    """The operand itself where an op returns it, a tensor on the same memory for a view, else a new one.

    A sparse tensor has the memory of its values, which are among the operands of the op that makes it.
    """
    if result.layout is not torch.strided:
        return SimTensor(result, operands[-1].allocation, owner)
    address = result.untyped_storage().data_ptr()
    for operand in operands:
        if operand.numbers is result:
            return operand
    for operand in operands:
        block = operand.numbers.layout is torch.strided
        if block and address and operand.numbers.untyped_storage().data_ptr() == address:
            return SimTensor(result, operand.allocation, operand.owner)
    return fresh(result, owner)


def _plain(nest: Any) -> Any:
    """An op's operands, their contents in the place of the tensors of these devices."""
    return tree_map_only(SimTensor, lambda tensor: tensor.numbers, nest)


def _check_devices(name: str, operands: list[Tensor], owner: SimulatedDevice) -> None:
    for operand in operands:
        if operand.dim() == 0 or (isinstance(operand, SimTensor) and operand.owner is owner):
            continue
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {name} got one on sim:{owner.index} and one on "
            f"{operand.device}"
        )
