"""Checks the arguments of ``choose`` and ``explain`` that are about the machine, and the environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from placer import machine

THREADS = ("keep", "tune")
MEASURE = ("never", "unsure", "always")


def check_devices(devices: Any) -> tuple[str, ...] | None:
    """Device names as they are spelled in profiles, duplicates dropped. They need not exist on this machine."""
    if devices is None:
        return None
    if isinstance(devices, (str, torch.device)):
        devices = (devices,)
    if not isinstance(devices, Iterable):
        raise TypeError(f"devices must be device names like ['cpu', 'cuda'], or None for all, not {devices!r}")
    names = tuple(dict.fromkeys(device_name(device) for device in devices))
    if not names:
        raise ValueError("devices is empty: name at least one device, or give None for all of this machine")
    return names


def device_name(device: Any) -> str:
    """``"cuda:0"`` and ``torch.device("cuda")`` -> ``"cuda"``."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"a device is a name like 'cpu' or 'cuda', or a torch.device, not {device!r}")
    try:
        torch.device(device)
        return machine.normal_device(str(device))
    except (RuntimeError, ValueError):
        raise ValueError(f"{str(device)!r} is not a device; accepted are names like 'cpu', 'cuda', 'mps'") from None


def check_available(names: Iterable[str], what: str = "devices") -> None:
    """ValueError for a device this machine does not have."""
    available = machine.available_devices()
    for name in names:
        if name not in available:
            raise ValueError(f"{what}: {name!r} is not on this machine; accepted: {', '.join(available)}")


def check_choice(name: str, value: Any, accepted: tuple[str, ...]) -> str:
    """One of a few words, or ValueError."""
    if value not in accepted:
        raise ValueError(f"{name} must be {' or '.join(map(repr, accepted))}, not {value!r}")
    return str(value)


def override() -> str | None:
    """The device in ``PLACER_DEVICE``, None when it is not set. Raises ValueError for one that is not here."""
    value = os.environ.get("PLACER_DEVICE", "").strip()
    if not value:
        return None
    try:
        name = device_name(value)
    except ValueError as error:
        raise ValueError(f"PLACER_DEVICE: {error}") from None
    check_available((name,), "PLACER_DEVICE")
    return name


def strict() -> bool:
    """Whether ``PLACER_STRICT`` asks for errors instead of fallbacks."""
    return os.environ.get("PLACER_STRICT", "").strip().lower() not in ("", "0", "false", "no", "off")
