"""Kinds of CPU, and what they differ in besides the numbers of their data sheets.

A kind is priced by what one core of a measured machine takes, scaled to the core at hand (``on_other_cpu``), then by how
torch shares an op among cores (``many_cores``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class CpuClass:
    """A kind of CPU, with the libraries that torch comes with for it.

    ``profile``: the shipped profile whose one-thread fit stands for a core of this kind. ``start_cycles``: cycles in
    which a core starts an op. ``reached``: share of a core's peak FLOP/s that large float32 products reach.
    ``efficiency``: FLOP/s of a family's ops, or of one op (``aten::tanh``), relative to large products, over those of
    the profile's machine; what is not listed is 1. ``register_bytes``: of a vector register. ``region``: seconds to start a loop on several cores, and more for
    each of them. ``scaling``: p threads multiply p to this power times as fast as one. ``copied``: bytes/s that one core copies between main memory, read and written.
    ``fault_seconds``: to map a fresh page of 4 KiB, on one core whatever the number of threads.
    """

    profile: str
    start_cycles: float
    reached: float
    register_bytes: int
    region: tuple[float, float]
    scaling: float
    copied: float
    efficiency: Mapping[str, float] = field(default_factory=dict)
    fault_seconds: float = 0.25e-6

    def region_seconds(self, threads: int) -> float:
        """Seconds to start a loop on so many threads; 0 on one."""
        return self.region[0] + self.region[1] * threads if threads > 1 else 0.0


#: Apple's cores, without oneDNN: convolutions unfold images and multiply them one by one, at 6 to 55 GFLOP/s whatever
#: the chip (TristanBilot/mlx-benchmark).
_APPLE = CpuClass(
    profile="amd-epyc-2-core", start_cycles=2000.0, reached=0.6, register_bytes=16, region=(3e-6, 1e-6), scaling=0.85,
    copied=40e9,
    efficiency={"convolution": 0.045, "convolution_backward": 0.045, "reduction": 1.5, "normalization": 4.0},
)  # fmt: skip
#: The kinds by name, as ``profile.cpus`` has them.
CLASSES: Mapping[str, CpuClass] = {
    "x86-avx512": CpuClass(
        profile="intel-xeon-avx512-2-core", start_cycles=5000.0, reached=0.8, register_bytes=64, region=(1e-6, 0.2e-6), scaling=0.85, copied=20e9,
    ),
    "x86-avx2": CpuClass(
        profile="amd-epyc-2-core", start_cycles=3500.0, reached=0.85, register_bytes=32,
        region=(1e-6, 0.2e-6), scaling=0.85, copied=20e9,
    ),
    "arm": CpuClass(
        profile="amd-epyc-avx512-2-core", start_cycles=2600.0, reached=0.8, register_bytes=16,
        region=(2e-6, 2.6e-6), scaling=0.9, copied=20e9,
        efficiency={"convolution": 0.3, "convolution_backward": 0.3, "functions": 0.3, "softmax": 0.3},
    ),
    "apple": _APPLE,
    # Accelerate multiplies in the matrix unit that each cluster of cores shares.
    "apple-accelerate": replace(_APPLE, efficiency={**_APPLE.efficiency, "matmul": 2.2, "linear_algebra": 2.2}),
}  # fmt: skip
