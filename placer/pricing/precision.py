"""What an accelerator multiplies float32 numbers in: float32 itself, or TF32 where this process allows it."""

from __future__ import annotations

from typing import Literal

from placer import machine
from placer.pricing.families import FAMILIES
from placer.pricing.work import Work

#: What has a switch of TF32 of its own: matrix products, convolutions and recurrent layers.
Switch = Literal["matmul", "conv", "rnn"]
#: What float32 products run in on tensor cores, and the suffix of its rate (``flops/tf32``).
TF32 = "tf32"
#: The switch each family obeys. cuDNN's two are on by default, that of products is off.
_SWITCHES: dict[str, Switch] = {
    "matmul": "matmul", "encoder": "matmul", "convolution": "conv", "convolution_backward": "conv", "recurrent": "rnn",
}  # fmt: skip
#: Families that multiply matrices. All others add up half-precision numbers at the rate of float32.
_MULTIPLYING = frozenset((*_SWITCHES, "attention"))
_HALVES = ("bfloat16", "float16")


def arithmetic(work: Work) -> str:
    """The dtype whose peak rate bounds an op on an accelerator: its own, or another that its kernels compute in.

    Depthwise convolutions have no matrices to multiply: they take neither tensor cores nor TF32.
    """
    dtype = work.dtype.partition("+")[0]
    multiplies = work.family in _MULTIPLYING and "depthwise" not in FAMILIES[work.family].variant(work)
    if dtype in _HALVES and not multiplies:
        return "float32"
    if dtype == "float32" and multiplies and work.family in _SWITCHES and allows_tf32(_SWITCHES[work.family]):
        return TF32
    return dtype


def allows_tf32(switch: Switch) -> bool:
    """Whether this process lets CUDA multiply float32 in TF32."""
    return dict(zip(("matmul", "conv", "rnn"), machine.tf32(), strict=True))[switch]
