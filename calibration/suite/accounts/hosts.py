"""The CPUs of the accounts: the shipped profile of the nearest class, and the maker's data sheet of its speed.

Nobody here has these CPUs. What a profile's ops take is scaled by three speeds from the data sheet: arithmetic (cores x
clock x vector width), memory (channels x transfer rate), and everything else (clock x work per clock). What it costs to
start an op on more cores than the profile was measured on is not known, and not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placer.pricing import COPIED, CpuSpeeds

AMD_AVX2 = "amd-epyc-2-core"
AMD_AVX512 = "amd-epyc-avx512-2-core"
INTEL_AVX512 = "intel-xeon-avx512-2-core"

#: Share of a data sheet's peak that a large product reaches: 0.84 to 0.87 on one core of the shipped profiles.
REACHED = 0.85
#: Bytes/s that one core copies at the most; those of the shipped profiles copy 13 to 25 GB/s.
OF_ONE_CORE = 20e9


@dataclass(frozen=True)
class Host:
    """A CPU by its data sheet.

    Attributes:
        name: what the table calls it.
        profile: the shipped profile it is scaled from.
        cores: physical cores that one process uses; torch starts one thread on each.
        gigahertz: with one core busy, the highest that the sheet names.
        all_core_gigahertz: with all cores busy.
        flops_per_cycle: float32, of one core: 8 with SSE, 16 with AVX, 32 with two AVX2 multiply-adds (or four of
            128 bits), 64 with two of AVX-512.
        gigabytes_per_second: of all memory channels.
        per_clock: scalar work per clock, Skylake = 1.0.
    """

    name: str
    profile: str
    cores: int
    gigahertz: float
    all_core_gigahertz: float
    flops_per_cycle: int
    gigabytes_per_second: float
    per_clock: float

    def speeds(self, measured: Mapping[str, float]) -> CpuSpeeds:
        """What ``measure_speeds`` would find, on all cores; ``measured`` are the rates of the profile it names."""
        slower = PROFILES[self.profile] / (self.gigahertz * self.per_clock)
        return CpuSpeeds(
            dispatch_seconds=measured["dispatch_seconds"] * slower,
            flops_per_second=REACHED * self.cores * self.all_core_gigahertz * 1e9 * self.flops_per_cycle,
            bytes_per_second=min(COPIED * self.gigabytes_per_second * 1e9, self.cores * OF_ONE_CORE),
        )


#: Work per clock by generation, Skylake = 1.0. From what the makers say of a generation over the one before: Intel
#: Nehalem to Sandy Bridge +11 %, Ivy Bridge +5 %, Haswell +10 %, Broadwell +5 %, Skylake +10 %, Sunny Cove and its
#: port Cypress Cove +18 %, Golden Cove +19 %; AMD Zen 2 +15 %, Zen 3 +19 %, Zen 4 +13 %, with Zen 2 level with Skylake.
WESTMERE, SANDY_BRIDGE, IVY_BRIDGE, HASWELL, BROADWELL, SKYLAKE = 0.68, 0.75, 0.79, 0.87, 0.91, 1.0
GOLDEN_COVE = 1.40
ZEN_1, ZEN_2, ZEN_3, ZEN_4 = 0.87, 1.0, 1.19, 1.34
#: Apple's M1 at 3.2 GHz is level with Zen 3 at 4.8 GHz in SPEC CPU 2017 (AnandTech, November 2020).
FIRESTORM = 1.75

#: Scalar speed of the CPU that each shipped profile was measured on: EPYC of Zen 3 and Zen 4 at 3.7 GHz, and Xeon of
#: Sapphire Rapids at 3.0 GHz, as clouds sell them.
PROFILES = {AMD_AVX2: 3.7 * ZEN_3, AMD_AVX512: 3.7 * ZEN_4, INTEL_AVX512: 3.0 * GOLDEN_COVE}

# Desktops. DDR3-1333 x 2 channels is 21.3 GB/s, DDR4-2133 x 2 34.1, DDR4-2666 x 2 41.6, DDR5-5200 x 2 83.2.
I7_2600K = Host("i7-2600K", AMD_AVX2, 4, 3.8, 3.5, 16, 21.3, SANDY_BRIDGE)
I7_3820 = Host("i7-3820", AMD_AVX2, 4, 3.8, 3.7, 16, 51.2, SANDY_BRIDGE)
I7_6700K = Host("i7-6700K", AMD_AVX2, 4, 4.2, 4.0, 32, 34.1, SKYLAKE)
I7_7700K = Host("i7-7700K", AMD_AVX2, 4, 4.5, 4.4, 32, 38.4, SKYLAKE)
I5_9600 = Host("i5-9600", AMD_AVX2, 6, 4.6, 4.3, 32, 41.6, SKYLAKE)
I9_10980XE = Host("i9-10980XE", INTEL_AVX512, 18, 4.6, 3.0, 64, 94.0, SKYLAKE)
RYZEN_7950X3D = Host("Ryzen 9 7950X3D", AMD_AVX512, 16, 5.7, 4.8, 32, 83.2, ZEN_4)

# Laptops.
I7_8550U = Host("i7-8550U", AMD_AVX2, 4, 4.0, 2.4, 32, 38.4, SKYLAKE)
I9_8950HK = Host("i9-8950HK", AMD_AVX2, 6, 4.8, 3.6, 32, 42.7, SKYLAKE)
I9_10885H = Host("i9-10885H", AMD_AVX2, 8, 5.3, 3.2, 32, 46.9, SKYLAKE)
RYZEN_5600H = Host("Ryzen 5 5600H", AMD_AVX2, 6, 4.2, 3.6, 32, 51.2, ZEN_3)
I7_13700H = Host("i7-13700H", AMD_AVX2, 6, 5.0, 3.8, 32, 83.2, GOLDEN_COVE)
APPLE_M1 = Host("Apple M1", AMD_AVX2, 4, 3.2, 3.0, 32, 68.3, FIRESTORM)
APPLE_M1_PRO = Host("Apple M1 Pro", AMD_AVX2, 8, 3.2, 3.0, 32, 204.8, FIRESTORM)

# Servers and workstations. Two sockets count as one where one process uses both.
XEON_X5650 = Host("dual Xeon X5650", AMD_AVX2, 12, 3.06, 2.66, 8, 64.0, WESTMERE)
HASWELL_6_CORE = Host("6-core Haswell-E", AMD_AVX2, 6, 3.6, 3.4, 32, 68.0, HASWELL)
XEON_E5_2630_V3 = Host("dual Xeon E5-2630 v3", AMD_AVX2, 16, 3.2, 2.6, 32, 118.0, HASWELL)
XEON_E5_2683_V3 = Host("Xeon E5-2683 v3", AMD_AVX2, 14, 3.0, 2.5, 32, 68.0, HASWELL)
XEON_E5_2690_V3 = Host("Xeon E5-2690 v3", AMD_AVX2, 12, 3.5, 2.9, 32, 68.0, HASWELL)
XEON_2_X_6_CORES = Host("dual 6-core Xeon E5 v3", AMD_AVX2, 12, 3.2, 2.6, 32, 118.0, HASWELL)
XEON_PLATINUM_8124M = Host("2 x Xeon Platinum 8124M", INTEL_AVX512, 36, 3.5, 3.0, 64, 256.0, SKYLAKE)
XEON_8259CL = Host("2 x Xeon Platinum 8259CL", INTEL_AVX512, 32, 3.5, 3.1, 64, 256.0, SKYLAKE)
EPYC_7513 = Host("EPYC 7513", AMD_AVX2, 32, 3.65, 3.3, 32, 204.8, ZEN_3)
EPYC_92_CORES = Host("EPYC, 92 cores", AMD_AVX2, 92, 3.3, 2.8, 32, 204.8, ZEN_2)
#: One core (two threads) of a 2.2 GHz Xeon of Broadwell or Skylake: what Colab gives without charge.
COLAB = Host("Colab CPU", AMD_AVX2, 1, 2.8, 2.2, 32, 76.8, BROADWELL)

#: Where an account names none: a desktop of four cores up to 2018, of eight since.
DESKTOP_2017 = I7_6700K
DESKTOP_2020 = Host("Ryzen 7 3700X", AMD_AVX2, 8, 4.4, 4.0, 32, 51.2, ZEN_2)
#: Where it names none and tells of a server: eight cores of one.
SERVER_2020 = Host("Xeon Gold 6248, 8 cores", INTEL_AVX512, 8, 3.9, 2.8, 64, 70.0, SKYLAKE)
SERVER_4_CORES = Host("Xeon Gold 6248, 4 cores", INTEL_AVX512, 4, 3.9, 2.8, 64, 35.0, SKYLAKE)
