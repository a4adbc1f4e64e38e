"""Restores what a real run changes: every tensor it writes, and the bindings of what holds tensors.

A tensor is copied before the first write to it, so the step's writes need not be known beforehand. Values are restored
byte by byte, below autograd: version counters are as before, and a pending backward pass stays possible.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import _disable_current_modes

from placer import machine
from placer.tracing import pytrees

#: Share of an accelerator's free memory that copies may take. They are fastest there, and the step needs the rest for
#: its activations; further copies go to the host.
_SHARE = 0.25


class Undo:
    """A log of how to undo each change; ``restore`` runs it, last change first."""

    def __init__(self) -> None:
        self._log: list[Callable[[], None]] = []
        self._known: dict[int, Any] = {}  # what the log covers, by id; held, so that ids stay unique
        self._own: dict[int, weakref.ref[Any]] = {}  # storages made during the run
        self._room: dict[torch.device, int] = {}  # bytes that copies may still take on an accelerator

    def restore(self) -> None:
        """Undo every change. An entry that fails does not stop the others; the first error is raised at the end."""
        failure: Exception | None = None
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            while self._log:
                try:
                    self._log.pop()()
                except Exception as error:  # noqa: BLE001 - boundary: the other entries must still run
                    failure = failure or error
        self._known.clear()
        if failure is not None:
            raise failure

    # --- tensors ------------------------------------------------------------------------------------------------------

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Protect the tensors an op is about to write, and the generator it draws from."""
        for index, name in _written(func):
            for tensor in pytrees.tensors(args[index] if index < len(args) else kwargs.get(name)):
                self.tensor(tensor)
        generator = kwargs.get("generator")
        if generator is not None and not self._seen(generator):
            state = generator.get_state()
            self._log.append(lambda: _void(generator.set_state(state)))

    def made(self, result: Any, args: tuple[Any, ...]) -> None:
        """Own the fresh storages of an op's result: they need no protection."""
        outputs = [t for t in _flat((result,)) if t.layout is torch.strided]
        if outputs:
            given = {id(t.untyped_storage()) for t in _flat(args) if t.layout is torch.strided}
            for tensor in outputs:
                storage = tensor.untyped_storage()
                if id(storage) not in given and id(storage) not in self._known:
                    self.own(storage)

    def own(self, storage: Any) -> None:
        """Never protect this storage: the run made it."""
        key = id(storage)
        if key not in self._own:
            self._own[key] = weakref.ref(storage, lambda _: _void(self._own.pop(key, None)))

    def own_all(self, nest: Any) -> None:
        """Own the storages of every tensor with values in a nest of copies; no other is ever protected."""
        for tensor in pytrees.tensors(nest):
            if tensor.layout is torch.strided and not tensor.is_meta:
                self.own(tensor.untyped_storage())

    def tensor(self, tensor: Tensor) -> None:
        """Protect a tensor's values, version, gradient, ``requires_grad`` and the memory it is bound to."""
        if tensor.is_meta or id(tensor) in self._known:
            return
        with torch._C.DisableTorchFunction():
            strided = tensor.layout is torch.strided
            if strided and id(tensor.untyped_storage()) in self._own:
                return
            with _disable_current_modes(), torch.no_grad():
                if not strided:
                    self._sparse(tensor)
                elif not self._seen(tensor):
                    self._binding(tensor)
                    self._bytes(tensor)
                    if tensor.is_leaf and tensor.grad is not None:
                        self.tensor(tensor.grad)

    def _sparse(self, tensor: Tensor) -> None:
        if tensor.layout is torch.sparse_coo:
            self.tensor(tensor._indices())
            self.tensor(tensor._values())

    def _binding(self, tensor: Tensor) -> None:
        leaf = tensor.is_leaf
        memory, grad, wanted = tensor.detach(), tensor.grad if leaf else None, tensor.requires_grad
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        version = None if tensor.is_inference() else _unsafe_preserve_version_counter(tensor)

        def put_back() -> None:
            if (tensor.data_ptr(), tensor.shape, tensor.stride()) != place:
                tensor.data = memory
            if leaf:
                if not tensor.is_leaf:  # written with something that needs a gradient
                    tensor.detach_()
                if tensor.requires_grad != wanted:
                    tensor.requires_grad_(wanted)
                if tensor.grad is not grad:
                    tensor.grad = grad
            if version is not None:
                version.__exit__(None, None, None)

        self._log.append(put_back)

    def _bytes(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if self._seen(storage) or storage.nbytes() == 0:
            return
        size = storage.nbytes()
        device = tensor.device
        saved = _as_bytes(storage, device).to(device if self._has_room(device, size) else "cpu", copy=True)

        def put_back() -> None:
            if storage.nbytes() != size:
                storage.resize_(size)
            now = _as_bytes(storage, device)
            if saved.device != device or not torch.equal(now, saved):
                now.copy_(saved)

        self._log.append(put_back)

    def _has_room(self, device: torch.device, size: int) -> bool:
        """Whether ``size`` more bytes of copies may stay on the device."""
        if device.type == "cpu":
            return True
        if device not in self._room:
            name = machine.normal_device(str(device))
            free = machine.known_free_memory(name) if name in machine.accelerators() else None
            self._room[device] = int(_SHARE * (free or 0))
        fits = size <= self._room[device]
        self._room[device] -= size if fits else 0
        return fits

    # --- containers ---------------------------------------------------------------------------------------------------

    def container(self, value: Any) -> None:
        """Protect which objects a container holds, and in which order, if its type is one of ``CONTAINERS``."""
        if type(value) not in CONTAINERS or self._seen(value):
            return
        saved = list(value.items()) if isinstance(value, dict) else list(value)

        def put_back() -> None:
            if isinstance(value, dict):
                if not _same(list(value), [k for k, _ in saved]) or not _same(
                    list(value.values()), [v for _, v in saved]
                ):
                    value.clear()
                    for key, item in saved:
                        value[key] = item
            elif not _same(list(value), saved):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(saved)

        self._log.append(put_back)

    def later(self, put_back: Callable[[], None]) -> None:
        """Add any other change, as a function that undoes it."""
        self._log.append(put_back)

    def _seen(self, value: Any) -> bool:
        if id(value) in self._known:
            return True
        self._known[id(value)] = value
        return False


#: Containers that can be restored: their contents are all of their state.
CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)


@lru_cache(maxsize=8192)
def _written(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = func._schema.arguments
    return tuple((i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write)


def _as_bytes(storage: Any, device: torch.device) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def _flat(values: tuple[Any, ...]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found


def _same(now: list[Any], saved: list[Any]) -> bool:
    return len(now) == len(saved) and all(a is b for a, b in zip(now, saved, strict=True))


def _void(_: object) -> None:
    return None
