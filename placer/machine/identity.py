"""What step times depend on: the hardware and the settings of torch, as plain JSON values, and what changed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.machine import nvml
from placer.machine.cpu import cpu_instructions, cpu_model, cpu_version, usable_cores
from placer.machine.devices import accelerators, host_memory, split_device

#: The oldest torch that placer was tried with; pyproject.toml asks for it (docs/dev/versions.md).
OLDEST_TORCH = "2.9.1"


def older_torch() -> str | None:
    """That this torch is older than any that placer was tried with, in words; None where it is not."""
    import torch

    if torch.__version__ >= OLDEST_TORCH:  # compared as versions
        return None
    return f"torch {torch.__version__} is older than {OLDEST_TORCH}, the oldest that placer was tried with"


def fingerprint() -> dict[str, Any]:
    """What step times depend on, as plain JSON values. Never creates a device context.

    The precision of float32 products is told but not compared: a script sets it, and prices follow it. ``tf32_matmul``
    and ``tf32_convolution`` are there only beside an accelerator.
    """
    import torch

    listed = describe_accelerators()
    facts: dict[str, Any] = {
        "cpu": cpu_model(),
        "cpu_version": cpu_version(),
        "cpu_instructions": cpu_instructions(),
        "cores": usable_cores(),
        "memory_bytes": host_memory()[1],
        "accelerators": listed,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "matmul_precision": matmul_precision(),
    }
    if listed:
        facts["tf32_matmul"], facts["tf32_convolution"], _ = tf32()
    return facts


def describe_accelerators() -> list[dict[str, Any]]:
    """``device``, ``name``, ``memory_bytes`` (0: unknown), ``driver`` ("": unknown), ... of every accelerator here."""
    described = []
    for device in accelerators():
        kind, index = split_device(device)
        name = kind if kind != "mps" else cpu_model()
        facts = nvml.describe(index) if kind == "cuda" else None
        described.append({"device": device, "name": name, "memory_bytes": 0, "driver": "", **(facts or {})})
    return described


def tf32() -> tuple[bool, bool, bool]:
    """Whether CUDA multiplies float32 in TF32: in matrix products, and in cuDNN's convolutions and recurrent layers."""
    import torch

    return (
        _tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        _tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
        _tf32(getattr(torch.backends.cudnn, "rnn", None), torch.backends.cudnn),
    )


def matmul_precision() -> str:
    """How exactly torch multiplies float32 matrices: ``highest``, ``high`` or ``medium``, or a backend's own word."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses the question once its newer, per-backend switches were used
        return str(getattr(torch.backends.cuda.matmul, "fp32_precision", "unknown"))


def _tf32(current: object, legacy: object) -> bool:
    """Torch has two ways to say TF32 and refuses to answer the old one once the new one was used."""
    precision = getattr(current, "fp32_precision", None)
    return precision == "tf32" if precision is not None else bool(getattr(legacy, "allow_tf32", False))


#: Kernels and containers report a slightly different total after an update; speed does not depend on it.
MEMORY_TOLERANCE = 0.05


def close(old: object, new: object) -> bool:
    """Whether two sizes of memory are of one kind of device; one that is not known (0) is of any."""
    if not isinstance(old, (int, float)) or not isinstance(new, (int, float)):
        return old == new
    return not old or not new or abs(old - new) <= MEMORY_TOLERANCE * max(abs(old), abs(new))


def same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two accelerators, as a fingerprint describes them, are twins: of one name, with as much memory."""
    return bool(a.get("name") == b.get("name")) and close(a.get("memory_bytes"), b.get("memory_bytes"))


#: Fingerprint fields compared by plain equality, with the words a reader knows.
_PLAIN = {
    "cpu": "CPU", "cpu_version": "CPU version", "cpu_instructions": "CPU instructions", "cores": "usable cores",
    "torch": "torch",
}  # fmt: skip
#: Fields not every profile has: older ones do not tell CPUs of one name apart.
_OPTIONAL = ("cpu_version", "cpu_instructions")


def differences(then: Mapping[str, Any], now: Mapping[str, Any], calibrated_threads: Sequence[int]) -> tuple[str, ...]:
    """One ``"field: old -> new"`` for every field that makes the old numbers wrong.

    Three differences are not staleness: a number of CPU threads within the range that was calibrated, an accelerator
    that is not visible any more (the numbers of the devices left still hold), and a twin of one that was there.
    """
    changes = [
        f"{label}: {_show(then.get(field))} -> {_show(now.get(field))}"
        for field, label in _PLAIN.items()
        if then.get(field) != now.get(field) and not (field in _OPTIONAL and (field not in then or field not in now))
    ]
    if not close(then.get("memory_bytes"), now.get("memory_bytes")):
        changes.append(f"memory: {_gib(then.get('memory_bytes'))} -> {_gib(now.get('memory_bytes'))}")
    threads = now.get("threads")
    calibrated = range(min(calibrated_threads), max(calibrated_threads) + 1) if calibrated_threads else ()
    if threads != then.get("threads") and threads not in calibrated:
        changes.append(f"threads: {_show(then.get('threads'))} -> {_show(threads)}")
    before = {facts["device"]: facts for facts in then.get("accelerators", ())}
    for facts in now.get("accelerators", ()):
        device = facts["device"]
        old = next((old for old in before.values() if same_kind(old, facts)), before.get(device))
        if old is None:
            changes.append(f"accelerator {device}: none -> {_show(facts.get('name'))}")
            continue
        changes += [
            f"{field} of {device}: {_show(old.get(field))} -> {_show(facts.get(field))}"
            for field in ("name", "driver")
            if old.get(field) != facts.get(field)
        ]
        if not close(old.get("memory_bytes"), facts.get("memory_bytes")):
            changes.append(f"memory of {device}: {_gib(old.get('memory_bytes'))} -> {_gib(facts.get('memory_bytes'))}")
    return tuple(changes)


def _gib(value: object) -> str:
    return f"{value / 2**30:.1f} GiB" if isinstance(value, (int, float)) else _show(value)


def _show(value: object) -> str:
    return "unknown" if value is None else str(value)
