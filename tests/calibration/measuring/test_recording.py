"""Who launched what, as the recorder shows a step on a GPU: its events are made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._C._autograd import DeviceType

from placer.calibration.measuring.recording import STEP_MARK, read_steps

GPU = DeviceType.CUDA


@dataclass
class Raw:
    """What the recorder hands out, times in nanoseconds."""

    called: str
    start: int
    end: int
    thread: int = 1
    correlation: int = 0
    linked: int = 0
    device: DeviceType = DeviceType.CPU
    annotation: bool = False
    activity: str = "cpu_op"

    def __getattr__(self, name: str) -> Callable[[], Any]:
        fields = {
            "name": "called", "start_ns": "start", "end_ns": "end", "start_thread_id": "thread",
            "correlation_id": "correlation", "linked_correlation_id": "linked", "device_type": "device",
            "is_user_annotation": "annotation", "activity_type": "activity",
        }  # fmt: skip
        return (lambda: -1) if name == "sequence_nr" else lambda: getattr(self, fields[name])


def test_kernels_count_for_the_op_that_launched_them_and_for_all_around_it() -> None:
    """Not for a launch; a range on the device is no kernel beside those within it, nor is the recorder's own work."""
    update = "Optimizer.step#Adam.step"
    ((events, _),) = read_steps(
        [
            Raw(STEP_MARK, 0, 1000),
            Raw(update, 50, 600, correlation=3),
            Raw("aten::linear", 100, 500, correlation=1),
            Raw("aten::addmm", 200, 400, correlation=2),
            Raw("cudaLaunchKernel", 200, 300, linked=2, correlation=9),
            Raw("kernel", 2000, 2300, linked=2, device=GPU),
            Raw("kernel", 2200, 2400, linked=2, device=GPU),  # on another stream
            Raw("kernel", 2000, 2300, device=GPU),  # of no op
            Raw(update, 2000, 2900, linked=3, device=GPU, annotation=True),
            Raw("cudaDeviceSynchronize", 600, 700, correlation=1),
            Raw("Activity Buffer Request", 710, 720, correlation=1, activity="overhead"),
        ]
    )
    found = {e.name: (round(e.device_seconds * 1e9), e.kernels) for e in events}
    assert found == {update: (400, 2), "aten::linear": (400, 2), "aten::addmm": (400, 2)}
