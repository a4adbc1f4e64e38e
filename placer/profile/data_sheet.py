"""What is known of one GPU without measuring it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataSheet:
    """What the maker says of one GPU, as PyTorch sees it: of a card with two GPUs, this is one of them.

    Rates are peaks at the boost clock, in TFLOP/s; 0 where the GPU has no such units or nobody states the rate.
    """

    #: As the driver writes it: ``Tesla T4``.
    name: str
    #: ``nvidia``, ``amd``, ``intel`` or ``apple``.
    vendor: str
    #: ``turing``, ``ampere``, ``cdna2``, ...
    architecture: str
    chip: str
    #: ``7.5``; the gfx name of an AMD GPU; "" elsewhere.
    compute_capability: str
    year: int
    #: Streaming multiprocessors, compute units (AMD), Xe cores (Intel) or GPU cores (Apple).
    sms: int
    boost_mhz: float
    #: Plain arithmetic, as are the next two: no tensor cores.
    float32_tflops: float
    float64_tflops: float
    float16_tflops: float
    #: Dense products that add up in float32, which is what PyTorch asks for.
    tensor_float16_tflops: float
    tensor_bfloat16_tflops: float
    tensor_tf32_tflops: float
    #: Of AMD's matrix cores.
    matrix_float32_tflops: float
    #: GB/s.
    bandwidth_gbps: float
    l2_mb: float
    #: Of a cache between L2 and memory (Infinity Cache, system level cache); 0 where there is none.
    last_level_cache_mb: float
    memory_gb: float
    #: Generation and lanes; 0 where the host is reached by another link, or shares the memory.
    pcie_gen: int
    pcie_lanes: int
    watts: float
    #: Shares the host's memory.
    integrated: bool
    aliases: tuple[str, ...]
    #: Where the figures come from.
    source: str
    #: Names of the fields above that no second source confirms.
    unchecked: tuple[str, ...]
