"""Random numbers of large tensors, drawn when somebody reads them: most of the time of building a large model.

A model's price depends on the shapes of its weights, not on their values. Built under ``LateDraws`` the weights have
memory, and everything else of the model is as it would be: buffers that the constructor computes, tied weights, dtypes.
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


class LateDraws:
    """A context in which random fills of large CPU tensors, and what is done to them in place, are put off.

    What reads or saves such a tensor finds its values: they are drawn first, from torch's generator as it is then, so
    that a seed gives other numbers than it would without. ``draw`` does so for all that are left, also afterwards.
    Initialisers that read what they draw (``trunc_normal_`` rejects, ``orthogonal_`` decomposes) take their time.
    """

    def __init__(self) -> None:
        #: By storage, which what is put off keeps alive.
        self._pending: dict[int | None, list[Callable[[], object]]] = {}
        #: Storages that are to have the values of another one.
        self._copies: dict[int | None, list[int | None]] = {}
        self._stack = contextlib.ExitStack()

    def __bool__(self) -> bool:
        """Whether there is something to draw."""
        return bool(self._pending)

    def __enter__(self) -> LateDraws:
        self._stack.enter_context(_Ops(self))
        self._stack.enter_context(_Memory(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def draw(self) -> None:
        """Give every tensor the values it was to have."""
        self.draw_those(list(self._pending))

    def draw_those(self, storages: Iterable[int | None]) -> None:
        """The same for the tensors in some storages."""
        with torch.no_grad(), _disable_current_modes():
            for storage in storages:
                for fill in self._pending.pop(storage, ()):
                    fill()
                self.draw_those(self._copies.pop(storage, ()))  # now: who knows what becomes of the original

    def waiting(self, tensors: Iterable[Tensor]) -> set[int | None]:
        """The storages of ``tensors`` that were not filled yet."""
        return self._pending.keys() & {_storage(tensor) for tensor in tensors}

    def put_off(self, tensor: Tensor, change: Callable[[], object]) -> Tensor:
        """Remember what changes a tensor."""
        self._settle(tensor)
        self._pending.setdefault(_storage(tensor), []).append(change)
        return tensor

    def fill(self, tensor: Tensor, run: Callable[[], Tensor]) -> Tensor:
        """Remember what fills a large tensor; fill a small one."""
        if not _is_large(tensor):
            return run()
        if _covers(tensor):
            self.forget(tensor)
        return self.put_off(tensor, run)

    def forget(self, tensor: Tensor) -> None:
        """What was put off for a tensor does not matter: all of it is overwritten."""
        self._settle(tensor)
        self._pending.pop(_storage(tensor), None)

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor that was not filled yet."""
        result = torch.empty_like(tensor)

        def fill() -> None:
            self.draw_those([_storage(tensor)])
            result.copy_(tensor)

        self.put_off(result, fill)
        self._copies.setdefault(_storage(tensor), []).append(_storage(result))
        return result

    def _settle(self, tensor: Tensor) -> None:
        """Copies have the values a tensor had before it changes."""
        if _storage(tensor) in self._copies:
            self.draw_those([_storage(tensor)])


class _Ops(TorchDispatchMode):
    """Puts off ops, or has them find what they read."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, for two seconds, to say that it leaves this class alone

    def __init__(self, late: LateDraws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.late = late

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        late, run = self.late, partial(func, *args, **(kwargs or {}))
        if func in _DRAWS:
            return late.fill(args[0], run)
        if not late or func.is_view or _reads_shapes(func):
            return run()
        given = list(_tensors(args, kwargs or {}))
        if func is torch.ops.aten.copy_.default and _covers(given[0]) and _storage(given[0]) != _storage(given[1]):
            late.forget(given[0])
        waiting = late.waiting(given)
        if waiting and len(given) == 1 and _changes_values(func):
            return late.put_off(args[0], run)
        if waiting and func is torch.ops.aten.clone.default and _covers(args[0]) and _keeps_format(kwargs):
            return late.copy(args[0])
        late.draw_those(waiting)
        return run()


class _Memory(TorchFunctionMode):
    """Has tensors filled before their memory is looked at without an op."""

    def __init__(self, late: LateDraws) -> None:
        super().__init__()
        self.late = late

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.late and getattr(func, "__name__", "") in _MEMORY:
            self.late.draw_those(self.late.waiting(_tensors(args)))
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
    """Whether a tensor is all there is in its memory."""
    return (
        _has_memory(tensor)
        and tensor.is_contiguous()
        and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    )


def _keeps_format(kwargs: dict[str, Any] | None) -> bool:
    return (kwargs or {}).get("memory_format") in (None, torch.preserve_format)


def _reads_shapes(func: Any) -> bool:
    """``empty_like`` and ``new_zeros`` look at what they are given, but not into it: torch's names say so."""
    name: str = func.overloadpacket.__name__
    return name.endswith("_like") or name.startswith("new_")


def _changes_values(func: Any) -> bool:
    """Whether an op writes to its first argument and returns it, as torch's names say, and leaves its shape alone."""
    name: str = func.overloadpacket.__name__
    in_place = name.endswith("_") and not name.endswith("__") and func._schema.is_mutable
    return in_place and torch.Tag.inplace_view not in func.tags
