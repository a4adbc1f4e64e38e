"""Switches of torch that a step's time depends on: keys of real step times, and notes where they add doubt."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from placer import machine
from placer.profile import Profile


def unusual() -> tuple[str, ...]:
    """The switches that are not as torch sets them, and change which kernels run."""
    cudnn = torch.backends.cudnn
    matmul, convolution, recurrent = machine.tf32()
    found = {
        "tf32 in matmul": matmul,
        "no tf32 in convolutions": not convolution,
        "no tf32 in recurrent layers": not recurrent,
        "no cudnn": not cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return tuple(name for name, is_so in found.items() if is_so)


def notes(profile: Profile, devices: Sequence[str]) -> tuple[str, ...]:
    """What a reader should know where a switch makes a prediction less sure."""
    said: list[str] = []
    cudnn = torch.backends.cudnn
    then, now = profile.fingerprint.get("matmul_precision"), machine.matmul_precision()
    if "cpu" in devices and "medium" in (then, now) and then != now:
        said.append(
            f"the CPU was calibrated with float32 matmul precision {then!r} and is now asked with {now!r}: a CPU with "
            "bfloat16 instructions multiplies faster with 'medium', which is not predicted"
        )
    if any(machine.split_device(device)[0] == "cuda" for device in devices):
        if not cudnn.enabled:
            said.append("cuDNN is off: convolutions and recurrent layers take longer on cuda than predicted")
        elif cudnn.benchmark:
            said.append(
                "cudnn.benchmark is on: convolutions on cuda may take less than predicted, and the first call of each "
                "shape takes longer"
            )
        elif cudnn.deterministic:
            said.append("cudnn.deterministic is on: convolutions on cuda may take longer than predicted")
    if torch.are_deterministic_algorithms_enabled():
        said.append("deterministic algorithms are on: gathers, scatters and their gradients may take longer than said")
    return tuple(said)
