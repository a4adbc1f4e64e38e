"""Kinds of CPU, and what they differ in besides the numbers of their data sheets.

A core is priced by its physics, by what networks learnt of cores of its kind (``networks``), and by the framework of a
measured machine (``estimate.on_other_cpu``); several by how torch shares an op among them (``many_cores``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placer.profile import THREAD_SECONDS


@dataclass(frozen=True)
class CpuClass:
    """A kind of CPU, with the libraries that torch comes with for it.

    ``profile``: the shipped profile whose one-thread fit stands for a core of this kind. ``start_cycles``: cycles in
    which a core starts an op. ``reached``: share of a core's peak FLOP/s that large float32 products reach.
    ``register_bytes``: of a vector register. ``region``: seconds to start a loop on several cores, and more for each of
    them. ``scaling``: p threads are p to this power times as fast as one. ``copied``: bytes/s that one core copies
    between main memory, read and written. ``multiplies``: times ``reached`` that products reach where a unit of their
    own multiplies. ``thread_seconds``: to end a thread and make another one, as GNU's OpenMP does (``profile.Cores``).
    ``unfolds``: torch has no oneDNN for it (see ``unfolded``). Results of ``fresh_from`` bytes and more take memory
    that the system gives page by page, at ``fresh`` bytes/s to all cores together.
    """

    profile: str
    start_cycles: float
    reached: float
    register_bytes: int
    region: tuple[float, float]
    scaling: float
    copied: float
    multiplies: float = 1.0
    thread_seconds: float = THREAD_SECONDS
    unfolds: bool = False
    fresh_from: float = math.inf
    fresh: float = math.inf

    def region_seconds(self, threads: int) -> float:
        """Seconds to start a loop on so many threads; 0 on one."""
        return self.region[0] + self.region[1] * threads if threads > 1 else 0.0


#: Apple's cores, without oneDNN. Memory of large results comes at 13 to 27 GB/s on all but one of ten chips, whatever
#: their cores and channels (TristanBilot/mlx-benchmark: concatenations and activations).
_APPLE = CpuClass(
    profile="amd-epyc-2-core", start_cycles=2000.0, reached=0.6, register_bytes=16, region=(3e-6, 1e-6), scaling=0.85,
    copied=40e9, thread_seconds=0.0, unfolds=True, fresh_from=8e6, fresh=20e9,
)  # fmt: skip
#: FLOP/s that Accelerate reaches over those of the cores' vectors, as it multiplies in the matrix unit that each
#: cluster of cores shares: 1.4 TFLOP/s in large products on an M1 Max, 3.1 on an M1 Ultra, 1.5 on an M4.
_ACCELERATE = 6.5
#: Bytes from which on glibc asks the system for memory of its own and gives it back (``DEFAULT_MMAP_THRESHOLD_MAX``),
#: and bytes/s of it: results of seven kinds of ops on an i9-10940X (TristanBilot/mlx-benchmark) come at 8 to 12 GB/s,
#: one of 63 MB on the 16 threads beside an H200 at 22 (``relu`` in its record's journal).
_MAPPED, _GIVEN = 2.0**25, 13e9
#: The kinds by name, as ``profile.cpus`` has them.
#:
#: Regions: 4 to 6 us at 16 threads of an Intel server (libgomp, calibration/records/nvidia-h200-16-core-second/
#: thread_ops.jsonl.xz: softmax and layer norm of few rows), 5 us at 24 (Intel OpenMP) and 44 us at 16 on Graviton4
#: (libgomp; torch's operator benchmark, ``bitwise_xor`` of 1 and of 262,144 bytes). Starts: backward passes of tiny
#: tensors in the same benchmark. ``scaling``: products of that record are 7.8 times as fast on 16 hardware threads, two
#: of a core; networks on 32 cores of a Xeon 8375C 11 to 15 times as fast as on one (torch's dashboards).
CLASSES: Mapping[str, CpuClass] = {
    "x86-avx512": CpuClass(
        profile="intel-xeon-avx512-2-core", start_cycles=5500.0, reached=0.8, register_bytes=64, region=(1e-6, 0.2e-6),
        scaling=0.85, copied=20e9, fresh_from=_MAPPED, fresh=_GIVEN,
    ),
    "x86-avx2": CpuClass(
        profile="amd-epyc-2-core", start_cycles=5000.0, reached=0.85, register_bytes=32, region=(1e-6, 0.2e-6),
        scaling=0.85, copied=20e9, fresh_from=_MAPPED, fresh=_GIVEN,
    ),
    "arm": CpuClass(
        profile="amd-epyc-avx512-2-core", start_cycles=2600.0, reached=0.8, register_bytes=16, region=(2e-6, 2.8e-6),
        scaling=0.9, copied=20e9,
    ),
    "apple": _APPLE,
    "apple-accelerate": replace(_APPLE, multiplies=_ACCELERATE),
}  # fmt: skip
