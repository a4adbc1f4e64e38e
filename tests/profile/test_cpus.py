"""The catalog of CPUs agrees with itself, and a name finds the CPU it means."""

from __future__ import annotations

import pytest

from placer.errors import UnknownCPU
from placer.profile import CpuSheet, cpus, find_cpu, find_instance, named_cores

SHEETS = tuple(cpus().values())
#: float32 FLOPs of a core and cycle: vectors of 16, 8 or 4, one, two or four units, two for a multiply-add. AVX alone,
#: before AVX2, has a unit that adds and one that multiplies.
FLOPS = {"x86-avx512": (32, 64), "x86-avx2": (16, 32), "arm": (16, 32), "apple-accelerate": (32,)}


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_a_sheet_is_consistent(sheet: CpuSheet) -> None:
    assert sheet.flops_per_cycle in FLOPS[sheet.kind]
    assert 4 <= sheet.cores <= 128
    assert 1.5 < sheet.clock_ghz < 5.5
    assert 2**17 <= sheet.l2_bytes <= 2**22
    assert 2**20 / 8 <= sheet.l3_bytes / sheet.cores <= 2**20 * 16
    assert 1e9 < sheet.bytes_per_second / sheet.cores < 6e10
    assert sheet.source
    assert find_cpu(sheet.name) is sheet
    for alias in sheet.aliases:
        assert find_cpu(alias) is sheet
    for family in sheet.instances:
        assert [each.name for each in SHEETS if family in each.instances] == [sheet.name]


NAMES = {
    "Xeon 8375C": "Intel Xeon Platinum 8375C",
    "Intel Xeon Platinum 8375C @ 2.90GHz (Ice Lake, one socket)": "Intel Xeon Platinum 8375C",
    "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz": "Intel Xeon Platinum 8259CL",
    "2x Intel Xeon E5-2620 v4 @ 2.10GHz": "Intel Xeon E5-2620 v4", "xeon e5-2686v4": "Intel Xeon E5-2686 v4",
    "i9-10940X": "Intel Core i9-10940X", "13th Gen Intel(R) Core(TM) i7-13700K": "Intel Core i7-13700K",
    "Intel(R) Core(TM) Ultra 7 155H": "Intel Core Ultra 7 155H", "AMD EPYC 7R13 Processor": "AMD EPYC 7R13",
    "AMD EPYC 7763 64-Core Processor": "AMD EPYC 7763", "AMD Ryzen 9 5950X 16-Core Processor": "AMD Ryzen 9 5950X",
    "AMD Ryzen 7 PRO 7840U w/ Radeon 780M Graphics": "AMD Ryzen 7 7840HS",
    "Threadripper 3970X": "AMD Ryzen Threadripper 3970X", "Graviton 4": "AWS Graviton4", "Apple M1": "Apple M1",
    "M1 Pro": "Apple M1 Pro", "M4 Max": "Apple M4 Max", "M5": "Apple M5",
    "c5.12xlarge (Xeon Platinum, Cascade Lake)": "Intel Xeon Platinum 8275CL", "m8g.4xlarge": "AWS Graviton4",
    "m5": "Intel Xeon Platinum 8175M", "AMD EPYC family 25 model 1": "AMD EPYC 7B13",
}  # fmt: skip


@pytest.mark.parametrize(("name", "cpu"), NAMES.items())
def test_names_that_people_and_systems_use(name: str, cpu: str) -> None:
    assert find_cpu(name).name == cpu


@pytest.mark.parametrize("name", ["", "Xeon", "AMD EPYC", "Intel i9", "EPYC 8375C", "c99.xlarge", "m5.huge", "T4"])
def test_what_is_no_cpu_of_the_catalog_is_refused(name: str) -> None:
    with pytest.raises(UnknownCPU, match="no CPU is called"):
        find_cpu(name)
    with pytest.raises(UnknownCPU, match="closest are: Intel Xeon Platinum 8375C"):
        find_cpu("Xeon 8375")


INSTANCES = [
    ("c5.12xlarge", 48, 24), ("c5.large", 2, 1), ("m8g.4xlarge", 16, 16), ("c8g.medium", 1, 1), ("c7a.xlarge", 4, 4),
    ("t3.medium", 2, 1), ("m7i-flex.2xlarge", 8, 4), ("c7i.metal-24xl", 96, 48), ("n1-standard-8", 8, 4),
    ("c4a-highcpu-16", 16, 16), ("t2d-standard-4", 4, 4), ("a2-highgpu-1g", 12, 6), ("a3-highgpu-8g", 208, 104),
    ("Standard_NC24ads_A100_v4", 24, 12), ("NC6s_v3", 6, 3), ("Standard_D8ps_v5", 8, 8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "vcpus", "cores"), INSTANCES)
def test_a_type_of_instance_says_its_vcpus(name: str, vcpus: int, cores: int) -> None:
    found = find_instance(name)
    assert found is not None
    assert found.vcpus == vcpus
    assert named_cores(name) == (found.sheet, cores)


def test_cores_are_those_asked_for_or_all_of_a_socket() -> None:
    for name, count, cores in (
        ("Xeon 8375C", None, 32),
        ("Xeon 8375C", 64, 64),
        ("c6i.4xlarge", 8, 4),
        ("c6i", 3, 2),
    ):
        assert named_cores(name, count) == (find_cpu("Xeon 8375C"), cores)
    with pytest.raises(ValueError, match="above 0"):
        named_cores("Xeon 8375C", 0)
