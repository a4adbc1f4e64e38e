"""Deferred initialisation: random numbers of large tensors are drawn when something reads them.

Drawing them is most of the time of building a large model, and a model's price depends on the shapes of its weights
only. Built under ``DeferredInit`` the weights have memory, and all else of the model is as usual: buffers that the
constructor computes, tied weights, dtypes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

#: Smaller tensors are drawn at once: that costs less than remembering them.
LEAST_ELEMENTS = 65_536
#: Ops that fill their first argument with random numbers, whatever was in it before.
_DRAWS = frozenset({torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default})
#: Methods of tensors that hand out their memory; torch has no op for what is then done to it.
_MEMORY = frozenset({
    "numpy", "__array__", "__dlpack__", "data_ptr", "tolist", "storage", "_typed_storage", "untyped_storage",
    "share_memory_", "__reduce_ex__", "__deepcopy__",
})  # fmt: skip


class DeferredInit:
    """A context that defers random fills of large CPU tensors, and the in-place changes that follow them.

    Whatever reads or saves such a tensor finds its values: they are drawn first, from torch's generator as it is then,
    so a seed gives other numbers than without the context. ``draw`` fills all that are left, also after the context.
    Initialisers that read what they draw (``trunc_normal_`` rejects, ``orthogonal_`` decomposes) take their usual time.
    """

    def __init__(self) -> None:
        #: Deferred changes by storage; they keep the storage alive.
        self._pending: dict[int | None, list[Callable[[], object]]] = {}
        #: By storage: the storages of its deferred copies.
        self._copies: dict[int | None, list[int | None]] = {}
        self._stack = contextlib.ExitStack()

    def __bool__(self) -> bool:
        """Whether any change is deferred."""
        return bool(self._pending)

    def __enter__(self) -> DeferredInit:
        self._stack.enter_context(_Ops(self))
        self._stack.enter_context(_Memory(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def draw(self) -> None:
        """Fill every tensor that waits for its values."""
        self.draw_those(list(self._pending))

    def draw_those(self, storages: Iterable[int | None]) -> None:
        """Fill the tensors in these storages."""
        with torch.no_grad(), _disable_current_modes():
            for storage in storages:
                for fill in self._pending.pop(storage, ()):
                    fill()
                self.draw_those(self._copies.pop(storage, ()))  # now: the original may change next

    def waiting(self, tensors: Iterable[Tensor]) -> set[int | None]:
        """The storages of ``tensors`` that are not filled yet."""
        return self._pending.keys() & {_storage(tensor) for tensor in tensors}

    def put_off(self, tensor: Tensor, change: Callable[[], object]) -> Tensor:
        """Defer a change of a tensor."""
        self._settle(tensor)
        self._pending.setdefault(_storage(tensor), []).append(change)
        return tensor

    def fill(self, tensor: Tensor, run: Callable[[], Tensor]) -> Tensor:
        """Defer the fill of a large tensor; fill a small one."""
        if not _is_large(tensor):
            return run()
        if _covers(tensor):
            self.forget(tensor)
        return self.put_off(tensor, run)

    def forget(self, tensor: Tensor) -> None:
        """Drop the deferred changes of a tensor: all of it is overwritten."""
        self._settle(tensor)
        self._pending.pop(_storage(tensor), None)

    def copy(self, tensor: Tensor) -> Tensor:
        """A deferred copy of a tensor that is not filled yet."""
        result = torch.empty_like(tensor)

        def fill() -> None:
            self.draw_those([_storage(tensor)])
            result.copy_(tensor)

        self.put_off(result, fill)
        self._copies.setdefault(_storage(tensor), []).append(_storage(result))
        return result

    def _settle(self, tensor: Tensor) -> None:
        """Fill a tensor and its copies before it changes: copies have its values from before."""
        if _storage(tensor) in self._copies:
            self.draw_those([_storage(tensor)])


class _Ops(TorchDispatchMode):
    """Defers ops, or fills the tensors they read."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for two seconds, to hide this class from it

    def __init__(self, deferred: DeferredInit) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.deferred = deferred

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        deferred, run = self.deferred, partial(func, *args, **(kwargs or {}))
        if func in _DRAWS:
            return deferred.fill(args[0], run)
        if not deferred or func.is_view or _reads_shapes(func):
            return run()
        given = list(_tensors(args, kwargs or {}))
        if func is torch.ops.aten.copy_.default and _covers(given[0]) and _storage(given[0]) != _storage(given[1]):
            deferred.forget(given[0])
        waiting = deferred.waiting(given)
        if waiting and len(given) == 1 and _changes_values(func):
            return deferred.put_off(args[0], run)
        if waiting and func is torch.ops.aten.clone.default and _covers(args[0]) and _keeps_format(kwargs):
            return deferred.copy(args[0])
        deferred.draw_those(waiting)
        return run()


class _Memory(TorchFunctionMode):
    """Fills tensors before a method reads their memory without an op."""

    def __init__(self, deferred: DeferredInit) -> None:
        super().__init__()
        self.deferred = deferred

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.deferred and getattr(func, "__name__", "") in _MEMORY:
            self.deferred.draw_those(self.deferred.waiting(_tensors(args)))
        return func(*args, **(kwargs or {}))


def _tensors(*nests: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_iter(nests) if isinstance(leaf, Tensor))


def _has_memory(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def _is_large(tensor: Tensor) -> bool:
    return tensor.numel() >= LEAST_ELEMENTS and _has_memory(tensor)


def _storage(tensor: Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if _has_memory(tensor) else None


def _covers(tensor: Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    return (
        _has_memory(tensor)
        and tensor.is_contiguous()
        and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    )


def _keeps_format(kwargs: dict[str, Any] | None) -> bool:
    return (kwargs or {}).get("memory_format") in (None, torch.preserve_format)


def _reads_shapes(func: Any) -> bool:
    """Whether an op reads the shape of its argument only (``empty_like``, ``new_zeros``), by torch's naming."""
    name: str = func.overloadpacket.__name__
    return name.endswith("_like") or name.startswith("new_")


def _changes_values(func: Any) -> bool:
    """Whether an op writes to its first argument and returns it, by torch's naming, and leaves its shape alone."""
    name: str = func.overloadpacket.__name__
    in_place = name.endswith("_") and not name.endswith("__") and func._schema.is_mutable
    return in_place and torch.Tag.inplace_view not in func.tags
