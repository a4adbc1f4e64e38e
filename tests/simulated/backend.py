"""Registers the device ``sim`` with torch, through its extension point for backends written in Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from simulated import autocast, entry_point, pinned, profiler
from simulated.copies import copy_into
from simulated.device import DEVICES, assemble, current, device_of
from simulated.tensor import SimTensor, fresh

#: Registrations live as long as this object.
_libraries: list[torch.library.Library] = []


class Backend:
    """What ``torch.sim`` offers: the functions torch and its users expect of any device module."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return any(device.initialized for device in DEVICES)

    def device_count(self) -> int:
        return len(DEVICES)

    def current_device(self) -> int:
        if not self.is_initialized():
            device_of().touch()
        return current[0]

    def set_device(self, device: Any) -> None:
        current[0] = device_of(device).index

    def get_device_name(self, device: Any = None) -> str:
        return device_of(device).spec.name

    def get_device_properties(self, device: Any = None) -> Any:
        spec = device_of(device).spec
        return SimpleNamespace(name=spec.name, total_memory=spec.memory)

    def synchronize(self, device: Any = None) -> None:
        device_of(device).synchronize()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes; asking creates a context, as it does on most devices."""
        asked = device_of(device)
        asked.touch()
        return asked.memory.free, asked.memory.capacity

    def memory_allocated(self, device: Any = None) -> int:
        return device_of(device).memory.used

    def memory_reserved(self, device: Any = None) -> int:
        return device_of(device).memory.reserved

    def max_memory_allocated(self, device: Any = None) -> int:
        return device_of(device).memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        device_of(device).memory.peak = device_of(device).memory.used

    def empty_cache(self) -> None:
        for device in DEVICES:
            device.memory.empty_cache()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    # Random numbers come from the CPU's generator, so that both devices draw the same ones.
    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return False


def supported() -> bool:
    """Whether this torch can have a backend written in Python."""
    return hasattr(torch._C, "_acc") and hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def register() -> None:
    """Make ``torch.device("sim")`` work in this process, for good. Torch calls it by the entry point."""
    if not supported() or _libraries:
        return
    from simulated.guard import Guard, raise_what_was_taken

    backend_registration._setup_privateuseone_for_python_backend("sim", backend_module=Backend(), device_guard=Guard())
    raise_what_was_taken()
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    pinned.register(library)
    _libraries.extend((library, *autocast.register()))
    wanted = entry_point.specs()
    assemble(wanted)
    if any(spec.profiled for spec in wanted):
        torch.profiler.profile, torch.profiler.supported_activities = profiler.Recorder, profiler.supported_activities
    _let_torch_synchronize()


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, device: Any = None, **_: Any) -> SimTensor:
    inner = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format, device="cpu")
    return _placed(inner, device)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> SimTensor:
    return _placed(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), device)


def _placed(inner: Tensor, device: Any) -> SimTensor:
    owner = device_of(device)
    owner.touch()
    return fresh(inner, owner)


def _copy_from(source: Tensor, target: Any, non_blocking: bool = False) -> Any:
    """What ``torch.tensor(0, device="sim")`` fills its result with: Python's side of dispatch is off meanwhile."""
    return copy_into(target, source, non_blocking=non_blocking)


def _let_torch_synchronize() -> None:
    """Torch's C++ side of a Python backend cannot wait for it; every other backend can be waited for this way."""
    builtin = torch.accelerator.synchronize

    def synchronize(device: Any = None, /) -> None:
        if device is None or isinstance(device, int) or torch.device(device).type == "sim":
            device_of(device).synchronize()
        else:
            builtin(device)

    torch.accelerator.synchronize = synchronize
