"""The catalog agrees with itself, and a name finds the GPU it means."""

from __future__ import annotations

import contextlib
import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.errors import UnknownGPU
from placer.profile import DataSheet, find_gpu, gpus, knowledge, reported_gpu, shipped

SHEETS = tuple(gpus().values())


def test_the_catalog_is_large_and_its_sheets_are_consistent() -> None:
    assert len(SHEETS) >= 300
    assert {sheet.vendor for sheet in SHEETS} == {"nvidia", "amd", "intel", "apple"}
    assert "gpus" not in shipped()
    for sheet in SHEETS:
        assert sheet.tensor_bfloat16_tflops <= sheet.tensor_float16_tflops
        assert 2 * sheet.tensor_tf32_tflops <= sheet.tensor_float16_tflops * 1.01
        assert sheet.float64_tflops <= sheet.float32_tflops * 1.01
        lanes = sheet.float32_tflops * 1e6 / (2 * sheet.sms * sheet.boost_mhz)
        assert 60 < lanes < 200 or sheet.name.startswith("NVIDIA H20")  # whose peaks export rules limit
        assert sheet.bandwidth_gbps > 0
        assert sheet.memory_gb > 0
        assert (sheet.pcie_gen > 0) == (sheet.pcie_lanes > 0)
        assert 2012 <= sheet.year <= 2026
        assert sheet.source
        stated = [getattr(sheet, name) for name in sheet.unchecked]  # what nobody states needs no second source
        assert 0 not in stated
        if sheet.vendor == "nvidia":  # tensor cores came with their architecture
            capability = float(sheet.compute_capability)
            assert (sheet.tensor_bfloat16_tflops > 0) == (sheet.tensor_tf32_tflops > 0) == (capability >= 8)
            without = capability < 7 or sheet.chip in ("TU116", "TU117")
            assert (sheet.tensor_float16_tflops == 0) == without
        assert (sheet.matrix_float32_tflops > 0) == sheet.architecture.startswith("cdna")
        assert re.fullmatch(r"\d+\.\d|gfx[0-9a-f]+|", sheet.compute_capability)
        assert knowledge(sheet.name).partition(" (")[0] in ("published", "data sheet")


NAMES = {
    "A100": "NVIDIA A100-SXM4-40GB", "a100 80gb": "NVIDIA A100-SXM4-80GB",
    "A100 PCIe 80 GB": "NVIDIA A100 80GB PCIe", "A100-SXM-80GB": "NVIDIA A100-SXM4-80GB",
    "4090": "NVIDIA GeForce RTX 4090", "rtx4090": "NVIDIA GeForce RTX 4090",
    "GeForce RTX 3080 Ti Laptop GPU": "NVIDIA GeForce RTX 3080 Ti Laptop GPU",
    "RTX 3080 Mobile": "NVIDIA GeForce RTX 3080 Laptop GPU", "3080": "NVIDIA GeForce RTX 3080",
    "3080 Ti": "NVIDIA GeForce RTX 3080 Ti", "RTX 3080 12GB": "NVIDIA GeForce RTX 3080 12GB",
    "4070": "NVIDIA GeForce RTX 4070", "4070 Super": "NVIDIA GeForce RTX 4070 SUPER",
    "4070 Ti": "NVIDIA GeForce RTX 4070 Ti", "4070 Ti Super": "NVIDIA GeForce RTX 4070 Ti SUPER",
    "1060": "NVIDIA GeForce GTX 1060 6GB", "GTX 1060 3GB": "NVIDIA GeForce GTX 1060 3GB", "T4": "Tesla T4",
    "NVIDIA Corporation TU104GL [Tesla T4]": "Tesla T4", "T400": "NVIDIA T400", "A10": "NVIDIA A10",
    "A10G": "NVIDIA A10G", "V100": "Tesla V100-SXM2-16GB", "V100 32GB": "Tesla V100-SXM2-32GB",
    "Tesla V100-SXM2-32GB": "Tesla V100-SXM2-32GB", "Tesla V100S-PCIE-32GB": "Tesla V100S-PCIE-32GB",
    "P100 12GB": "Tesla P100-PCIE-12GB", "H100": "NVIDIA H100 80GB HBM3", "H100 PCIe": "NVIDIA H100 PCIe",
    "GH200 480GB": "NVIDIA GH200 480GB", "GH200 144G HBM3e": "NVIDIA GH200 144G HBM3e",
    "RTX A6000": "NVIDIA RTX A6000", "RTX 6000 Ada": "NVIDIA RTX 6000 Ada Generation",
    "Quadro RTX 6000": "Quadro RTX 6000", "RTX 6000": "Quadro RTX 6000", "TITAN V": "NVIDIA TITAN V",
    "NVIDIA TITAN X (Pascal)": "NVIDIA TITAN X (Pascal)", "GTX TITAN X": "NVIDIA GeForce GTX TITAN X",
    "NVIDIA GeForce RTX 2070 with Max-Q Design": "NVIDIA GeForce RTX 2070 with Max-Q Design",
    "mi300x": "AMD Instinct MI300X", "AMD Instinct MI250X / MI250": "AMD Instinct MI250X",
    "7900 XTX": "AMD Radeon RX 7900 XTX", "7900 XT": "AMD Radeon RX 7900 XT", "A770": "Intel(R) Arc(TM) A770 Graphics",
    "Intel(R) Arc(TM) B580 Graphics": "Intel(R) Arc(TM) B580 Graphics", "M2 Max": "Apple M2 Max",
    "m2 max 30-core": "Apple M2 Max (30-core GPU)", "Apple M2 Max 64GB": "Apple M2 Max",
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5f8a6b2c-1111-2222-3333-444455556666)": "NVIDIA A100-SXM4-40GB",
    "NVIDIA-A100-SXM4-80GB-SHARED": "NVIDIA A100-SXM4-80GB", "nvidia-h100-mega-80gb": "NVIDIA H100 80GB HBM3",
    "NVIDIA GH200 120GB": "NVIDIA GH200 480GB",
    "GA106M [GeForce RTX 3060 Mobile / Max-Q]": "NVIDIA GeForce RTX 3060 Laptop GPU",
    "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]": "AMD Radeon RX 7900 XT",
    "Vega 20 [Radeon Instinct MI60 / MI50]": "AMD Instinct MI60", "AMD Radeon RX 580 Series": "Radeon RX 580",
    "AMD Instinct MI300X HF": "AMD Instinct MI300X", "Intel(R) Graphics [0xe20b]": "Intel(R) Arc(TM) B580 Graphics",
    "Intel(R) Arc(TM) 140V GPU (16GB)": "Intel(R) Arc(TM) 140V GPU",
    "NVIDIA Jetson Orin Nano Developer Kit": "NVIDIA Jetson Orin Nano 8GB", "NVIDIA Thor": "NVIDIA Jetson AGX Thor",
    "B200 192GB": "NVIDIA B200", "K80 24GB": "Tesla K80", "RX 580 4GB": "Radeon RX 580 4GB",
    "M4": "Apple M4", "M40": "Tesla M40", "P4": "Tesla P4",
}  # fmt: skip
UNKNOWN = (
    "", "NVIDIA", "banana", "RTX 3085", "GTX 3080", "RTX 3070 6GB", "A100 24GB", "RTX 6000 Pascal", "4070 Ti SUPER Ti",
    "T40", "AMD Radeon Graphics", "Tesla M5", "Intel L4", "AMD T4", "NVIDIA MI300X", "T4 MIG 1g.5gb",
    "A100 MIG 8g.40gb", "A100 40GB MIG 1g.20gb", "mig-3g.20gb", "NVIDIA A200-16Q",
)  # fmt: skip


@pytest.mark.parametrize(("name", "found"), NAMES.items())
def test_names_of_people_drivers_clusters_and_sellers(name: str, found: str) -> None:
    assert find_gpu(name).name == found


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_catalog_lacks_is_not_taken_for_another(name: str) -> None:
    with pytest.raises(UnknownGPU, match="placer gpus"):
        find_gpu(name)
    with pytest.raises(UnknownGPU, match=r"'RTX 4085'; the closest are: .*NVIDIA GeForce RTX 4080"):
        find_gpu("RTX 4085")


@pytest.mark.parametrize(
    ("name", "gib", "sms", "found"),
    [
        ("NVIDIA GeForce RTX 3050", 5.8, 18, "NVIDIA GeForce RTX 3050 6GB"),
        ("NVIDIA GeForce RTX 3060", 12.0, 0, "NVIDIA GeForce RTX 3060"),
        ("NVIDIA GeForce RTX 3060", 8.0, 0, "NVIDIA GeForce RTX 3060 8GB"),
        ("NVIDIA GeForce RTX 3080", 12.0, 0, "NVIDIA GeForce RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 2060", 0, 34, "NVIDIA GeForce RTX 2060 12GB"),
        ("NVIDIA GeForce RTX 4060 Ti", 15.6, 0, "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("NVIDIA GeForce GTX 1070", 8.0, 16, "NVIDIA GeForce GTX 1070 Mobile"),
        ("Orin (nvgpu)", 61.4, 16, "NVIDIA Jetson AGX Orin 64GB"),
        ("Orin (nvgpu)", 29.8, 14, "NVIDIA Jetson AGX Orin 32GB"),
        ("Orin (nvgpu)", 7.4, 4, "NVIDIA Jetson Orin Nano 4GB"),
        ("Orin (nvgpu)", 15.3, 8, "NVIDIA Jetson Orin NX 16GB"),
        ("AMD Instinct MI250X / MI250", 64.0, 104, "AMD Instinct MI250"),
        ("AMD Instinct MI60 / MI50", 16.0, 0, "AMD Instinct MI50"),
        ("Radeon RX 7900 XT/7900 XTX/7900 GRE", 24.0, 0, "AMD Radeon RX 7900 XTX"),
        ("RX Vega", 8.0, 64, "Radeon RX Vega 64"),
        ("Tesla V100-SXM2-32GB", 15.0, 80, "Tesla V100-SXM2-32GB"),
    ],
)
def test_what_the_driver_reports_tells_gpus_of_one_name_apart(name: str, gib: float, sms: int, found: str) -> None:
    assert find_gpu(name, memory_bytes=int(gib * 2**30), sms=sms).name == found
    assert reported_gpu({"name": name, "memory_bytes": int(gib * 2**30), "sms": sms}).name == found


@pytest.mark.parametrize(
    ("name", "card", "sms", "memory_gb", "share_of_memory"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100-SXM4-40GB", 42, 20, 4 / 8),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "NVIDIA A100-SXM4-40GB", 14, 20, 4 / 8),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "NVIDIA A100-SXM4-80GB", 14, 10, 1 / 8),
        ("GRID A100-3-20C", "NVIDIA A100-SXM4-40GB", 42, 20, 4 / 8),
        ("NVIDIA A30 MIG 1g.6gb", "NVIDIA A30", 14, 6, 2 / 8),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", "NVIDIA H100 80GB HBM3", 26, 20, 2 / 8),
        ("H100 MIG 7g.80gb", "NVIDIA H100 80GB HBM3", 132, 80, 1.0),
        ("NVIDIA H100L-1-12C MIG 1g.12gb", "NVIDIA H100 NVL", 16, 12, 1 / 8),
        ("H100 PCIe MIG 3g.40gb", "NVIDIA H100 PCIe", 46, 40, 4 / 8),
        ("nvidia_b200_3g.90gb", "NVIDIA B200", 63, 90, 4 / 8),
        ("RTX PRO 6000 Server MIG 1g.24gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 47, 24, 2 / 8),
    ],
)
def test_a_slice_is_a_share_of_its_card(name: str, card: str, sms: int, memory_gb: int, share_of_memory: float) -> None:
    part, whole = find_gpu(name), find_gpu(card)
    assert (part.sms, part.memory_gb, part.chip) == (sms, memory_gb, whole.chip)
    assert part.bandwidth_gbps == pytest.approx(whole.bandwidth_gbps * share_of_memory)
    assert part.l2_mb == pytest.approx(whole.l2_mb * share_of_memory)
    for field in ("float32_tflops", "tensor_float16_tflops", "tensor_tf32_tflops", "watts"):
        assert getattr(part, field) == pytest.approx(getattr(whole, field) * sms / whole.sms, rel=1e-3)
    assert find_gpu(part.name) == part
    assert knowledge(part.name) == "data sheet"


@pytest.mark.parametrize(
    ("name", "card", "memory_gb"),
    [
        ("GRID T4-16Q", "Tesla T4", 16),
        ("NVIDIA A10-24Q", "NVIDIA A10", 24),
        ("GRID V100DX-8Q", "Tesla V100-SXM2-32GB", 8),
        ("NVIDIA RTXA6000-48Q", "NVIDIA RTX A6000", 48),
        ("GRID M60-0B", "Tesla M60", 0.5),
    ],
)
def test_a_virtual_gpu_is_its_card_with_less_memory(name: str, card: str, memory_gb: float) -> None:
    part, whole = find_gpu(name), find_gpu(card)
    assert part == dataclasses.replace(whole, name=part.name, memory_gb=memory_gb, aliases=())
    assert find_gpu(part.name) == part


def test_every_name_finds_its_own_sheet_or_one_that_shares_it() -> None:
    for sheet in SHEETS:
        assert find_gpu(sheet.name) is sheet
        for alias in sheet.aliases:
            found = find_gpu(alias, memory_bytes=int(sheet.memory_gb * 2**30), sms=sheet.sms)
            assert (found.sms, found.memory_gb) == (sheet.sms, sheet.memory_gb), alias


@given(
    sheet=st.sampled_from(SHEETS),
    upper=st.booleans(),
    blank=st.sampled_from([" ", "-", "_", "  "]),
    brand=st.sampled_from(["", "{} ", "{} corporation "]),
    glued=st.booleans(),
)
def test_case_blanks_and_brand_do_not_matter(
    sheet: DataSheet, upper: bool, blank: str, brand: str, glued: bool
) -> None:
    text = blank.join(re.split(r"[ -]", sheet.name))
    if glued and "(" not in sheet.name:  # rtx4090, 3080ti
        text = re.sub(r"(?<=[TR]X) (?=\d)|(?<=\d) (?=(?:Ti|SUPER|XT|XTX)\b)", "", text)
    assert find_gpu(brand.format(sheet.vendor) + (text.upper() if upper else text.lower())) is sheet


@given(st.text(max_size=60))
def test_any_text_has_an_answer(text: str) -> None:
    with contextlib.suppress(UnknownGPU):
        assert find_gpu(text).memory_gb > 0
