"""Copies between a host and a GPU of the catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.pricing.gpu.copies import copy_rates
from placer.pricing.timeline import copy_seconds
from placer.profile import DeviceFit, find_gpu, gpus

DIRECTIONS, MEMORIES = ("h2d", "d2h"), ("pageable", "pinned")


def fit(name: str) -> DeviceFit:
    return DeviceFit("cuda", 1, copy_rates(find_gpu(name)), {}, {}, {})


def test_every_gpu_has_what_the_timeline_reads() -> None:
    for sheet in gpus().values():
        rates = copy_rates(sheet)
        assert len(rates) == 8
        for direction in DIRECTIONS:
            for memory in MEMORIES:
                prefix = f"copy/{direction}/{memory}"
                assert 1e-6 < rates[f"{prefix}/seconds_per_tensor"] < 1e-3, sheet.name
                assert 1e8 < rates[f"{prefix}/bytes_per_second"] < 1e12, sheet.name
            slow, fast = (rates[f"copy/{direction}/{memory}/bytes_per_second"] for memory in MEMORIES)
            assert slow <= fast, sheet.name


def test_copies_are_no_faster_than_the_link() -> None:
    #: Bytes per second of one lane by generation, after encoding.
    lane = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
    for sheet in gpus().values():
        if sheet.pcie_gen and not sheet.integrated:
            most = lane[min(sheet.pcie_gen, 6)] * (sheet.pcie_lanes or 16)
            assert copy_rates(sheet)["copy/h2d/pinned/bytes_per_second"] <= most, sheet.name


def test_seconds_of_a_copy() -> None:
    million = copy_seconds((10**6,), fit("T4"), "h2d", "pageable")
    assert million == pytest.approx(75e-6 + 1e6 / 6.5e9)
    assert copy_seconds((10**6, 10**6), fit("T4"), "h2d", "pageable") == pytest.approx(2 * million)
    assert copy_seconds((10**8,), fit("H100"), "h2d", "pinned") < copy_seconds((10**8,), fit("T4"), "h2d", "pinned")


def test_fewer_lanes_are_slower_and_pageable_memory_is_never_faster() -> None:
    sheet = replace(find_gpu("A100"), pcie_gen=4, pcie_lanes=4)
    rates = copy_rates(sheet)
    assert rates["copy/h2d/pinned/bytes_per_second"] == pytest.approx(25e9 / 4)
    assert rates["copy/h2d/pageable/bytes_per_second"] == pytest.approx(25e9 / 4)


def test_a_generation_to_come_is_taken_as_the_latest() -> None:
    assert copy_rates(replace(find_gpu("T4"), pcie_gen=9)) == copy_rates(replace(find_gpu("T4"), pcie_gen=6))


def test_shared_memory_and_other_links() -> None:
    shared = copy_rates(find_gpu("M1 Pro"))
    start = "copy/h2d/pageable/seconds_per_tensor"
    assert shared[start] < copy_rates(find_gpu("T4"))[start]
    linked = copy_rates(replace(find_gpu("H100"), pcie_gen=0, pcie_lanes=0))
    assert linked["copy/h2d/pinned/bytes_per_second"] > copy_rates(find_gpu("H100"))["copy/h2d/pinned/bytes_per_second"]
