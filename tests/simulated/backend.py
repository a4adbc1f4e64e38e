"""Registers the device ``sim`` with torch, through its extension point for backends written in Python."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from simulated import pinned
from simulated.device import DEVICE
from simulated.tensor import SimTensor, fresh

#: Registrations live as long as this object.
_libraries: list[torch.library.Library] = []


class Backend:
    """What ``torch.sim`` offers: the functions torch and its users expect of any device module."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return DEVICE.initialized

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        DEVICE.touch()
        return 0

    def synchronize(self, device: Any = None) -> None:
        DEVICE.synchronize()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """(free, total) bytes; asking creates a context, as it does on most devices."""
        DEVICE.touch()
        return DEVICE.memory.free, DEVICE.memory.capacity

    def memory_allocated(self, device: Any = None) -> int:
        return DEVICE.memory.used

    def empty_cache(self) -> None:
        pass

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
    pinned.register(library)
    _libraries.append(library)
    _let_torch_synchronize()


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> SimTensor:
    DEVICE.touch()
    return fresh(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> SimTensor:
    DEVICE.touch()
    return fresh(torch.empty_strided(size, stride, dtype=dtype))


def _let_torch_synchronize() -> None:
    """Torch's C++ side of a Python backend cannot wait for it; every other backend can be waited for this way."""
    builtin = torch.accelerator.synchronize

    def synchronize(device: Any = None, /) -> None:
        if device is None or isinstance(device, int) or torch.device(device).type == "sim":
            DEVICE.synchronize()
        else:
            builtin(device)

    torch.accelerator.synchronize = synchronize
