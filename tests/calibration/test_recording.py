"""What the framework's recorder says of a device, without one: events made by hand, as CUDA's have been described."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch._C._autograd import DeviceType

from placer.calibration.recording import kernel_seconds


@dataclass(frozen=True)
class Reported:
    """One of the recorder's events, as far as kernels are concerned."""

    device: DeviceType
    launched_by: int
    nanoseconds: int = 0
    named_range: bool = False

    def device_type(self) -> DeviceType:
        return self.device

    def linked_correlation_id(self) -> int:
        return self.launched_by

    def duration_ns(self) -> int:
        return self.nanoseconds

    def is_user_annotation(self) -> bool:
        return self.named_range


CPU, CUDA = DeviceType.CPU, DeviceType.CUDA


def test_kernels_count_for_the_op_that_launched_them() -> None:
    found = kernel_seconds([Reported(CUDA, 7, 3000), Reported(CUDA, 7, 2000), Reported(CUDA, 9, 500)])
    assert found == pytest.approx({7: 5e-6, 9: 5e-7})


def test_a_range_on_the_device_holds_its_kernels_and_is_none() -> None:
    adam = [Reported(CUDA, 4, 8000, named_range=True), Reported(CUDA, 5, 3000), Reported(CUDA, 6, 5000)]
    assert sum(kernel_seconds(adam).values()) == pytest.approx(8e-6)


def test_launches_and_ops_on_the_host_take_no_time_of_the_device() -> None:
    assert not kernel_seconds([Reported(CPU, 0, 9000), Reported(CPU, 3, 4000), Reported(CUDA, 0, 700)])
