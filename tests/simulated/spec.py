"""What the simulated device costs. Round numbers, set by hand: they stand for no product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Copy:
    """Seconds per tensor, and bytes per second, of copies in one direction from one kind of host memory."""

    seconds_per_tensor: float
    bytes_per_second: float


@dataclass(frozen=True)
class Spec:
    """Seconds, FLOP/s, bytes/s and bytes.

    ``issue`` is what the host needs to hand over a kernel, ``view`` what it needs for an op that launches none,
    ``launch`` passes from there until the kernel can start, ``kernel`` is what every kernel takes besides its work.
    ``sync`` is the host's cost of waiting, beyond the wait itself, ``first_call`` what an op takes the host longer when
    the context runs it for the first time. ``kernels``: the number of kernels of ops that are not one, by name.

    Of the rates, 0 for TF32 and bfloat16 means float32's, and 0 for float16 that its products are refused. TF32 is
    used where torch's switches allow it.

    With ``cache`` the allocator keeps what is freed until it is emptied. With ``profiled`` the recorder sees kernels;
    with ``loses_kernels``, too, session k loses its first k.
    """

    name: str = "sim"
    issue: float = 4e-6
    view: float = 1e-6
    launch: float = 10e-6
    kernel: float = 3e-6
    sync: float = 8e-6
    context: float = 0.05
    first_call: float = 1e-4
    flops: float = 2e11
    flops_float64: float = 5e10
    flops_tf32: float = 0.0
    flops_bfloat16: float = 0.0
    flops_float16: float = 0.0
    bytes_per_second: float = 4e10
    queue_depth: int = 1000
    memory: int = 256 << 20
    cache: bool = False
    kernels: Mapping[str, int] = field(default_factory=dict)
    profiled: bool = False
    loses_kernels: bool = False
    copies: Mapping[tuple[str, str], Copy] = field(
        default_factory=lambda: {
            ("h2d", "pageable"): Copy(20e-6, 4e9),
            ("d2h", "pageable"): Copy(25e-6, 3e9),
            ("h2d", "pinned"): Copy(12e-6, 1e10),
            ("d2h", "pinned"): Copy(15e-6, 8e9),
        }
    )


SPEC = Spec()
