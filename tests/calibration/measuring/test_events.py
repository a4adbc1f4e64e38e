"""Who launched what, whether the profiler noted the op or only the runtime's call. The events are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from placer.calibration.measuring.events import RawEvent, assign, is_launch, is_runtime_call, union


def event(name: str, start: int, end: int, number: int, kind: Any = "op", **more: Any) -> RawEvent:
    return RawEvent(name, start, end, -1, more.pop("thread", 1), number, kind, **more)


LINEAR, ADDMM = event("aten::linear", 100, 500, 1), event("aten::addmm", 200, 400, 2)
LAUNCH = event("cudaLaunchKernel", 300, 310, 77, "runtime")
KERNEL = event("gemm", 900, 950, 77, "kernel", thread=0)


def test_work_is_the_innermost_ops_that_was_open_when_it_was_launched() -> None:
    found = assign([KERNEL, LAUNCH, ADDMM, LINEAR])
    assert dict(found.work) == {2: [KERNEL]}
    assert dict(found.calls) == {2: [LAUNCH]}
    assert [(e.name, e.kernels, round(e.device_seconds * 1e9)) for e in found.step(0, 1000)] == [
        ("aten::linear", 1, 50), ("aten::addmm", 1, 50),
    ]  # fmt: skip


def test_a_launch_on_another_thread_is_another_ops() -> None:
    other = event("aten::mul", 250, 350, 3, thread=2)
    launch = event("cudaLaunchKernel", 300, 310, 77, "runtime", thread=2)
    assert dict(assign([KERNEL, launch, ADDMM, LINEAR, other]).work) == {3: [KERNEL]}


def test_an_op_that_the_profiler_noted_needs_no_call() -> None:
    noted = event("gemm", 900, 950, 77, "kernel", op=1)
    assert dict(assign([noted, ADDMM, LINEAR]).work) == {1: [noted]}
    launched = event("cudaLaunchKernel", 0, 10, 77, "runtime", op=1)  # outside, by a clock of its own
    assert dict(assign([KERNEL, launched, ADDMM, LINEAR]).work) == {1: [KERNEL]}


def test_work_that_was_launched_before_the_session_has_no_op() -> None:
    found = assign([KERNEL, ADDMM, LINEAR])
    assert not found.work
    assert found.stray == [KERNEL]
    unknown = event("gemm", 900, 950, 0, "kernel")
    assert assign([unknown, event("cudaLaunchKernel", 300, 310, 0, "runtime"), ADDMM]).stray == [unknown]


def test_an_annotation_launches_what_no_op_does() -> None:
    update = event("Optimizer.step#Adam.step", 50, 600, 9, "annotation")
    inner = event("nccl:all_reduce", 250, 350, 8, "annotation")
    assert set(assign([KERNEL, LAUNCH, ADDMM, LINEAR, update, inner]).work) == {2}
    assert set(assign([KERNEL, LAUNCH, update]).work) == {9}


def test_kernels_side_by_side_count_once() -> None:
    """cuDNN runs the layers and directions of an LSTM on several streams."""
    times = ((1, 0, 100), (2, 50, 120), (1, 200, 210))
    kernels = [event("gemm", start, end, 77, "kernel", stream=stream) for stream, start, end in times]
    assert union(kernels) == pytest.approx(130e-9)
    launch = event("cudaLaunchKernel", 1, 2, 77, "runtime")
    (lstm,) = assign([event("aten::_cudnn_rnn", 0, 90, 5), launch, *kernels]).step(0, 99)
    assert lstm.kernels == 3
    assert lstm.device_seconds == pytest.approx(130e-9)


def test_a_launch_without_a_kernel_tells_that_the_profiler_lost_one() -> None:
    second = event("cudaLaunchKernel", 320, 330, 78, "runtime")
    assert assign([KERNEL, LAUNCH, second, ADDMM, LINEAR]).launches(0, 1000) == (2, 1)
    assert assign([KERNEL, LAUNCH, second, ADDMM, LINEAR]).launches(600, 1000) == (0, 0)


def test_fills_of_nothing_and_kernels_of_a_graph_are_none_lost() -> None:
    fill = event("cudaMemsetAsync", 320, 330, 78, "runtime")
    assert assign([KERNEL, LAUNCH, fill, ADDMM]).launches(0, 1000) == (1, 0)
    graph = event("cudaGraphLaunch", 300, 310, 77, "runtime")
    assert assign([KERNEL, KERNEL, graph, ADDMM]).launches(0, 1000) == (0, 0)


@pytest.mark.parametrize(
    "name", ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync",
             "cudaLaunchCooperativeKernel", "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipModuleLaunchKernel",
             "hipExtLaunchKernel", "hipMemcpyWithStream"],
)  # fmt: skip
def test_these_put_one_piece_of_work_into_a_queue(name: str) -> None:
    assert is_runtime_call(name)
    assert is_launch(name)


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "cudaStreamIsCapturing", "cudaGraphLaunch", "hipFree"])
def test_these_are_calls_that_launch_nothing(name: str) -> None:
    assert is_runtime_call(name)
    assert not is_launch(name)


@pytest.mark.parametrize("name", ["aten::cumsum", "cudnn_rnn", "CudnnRnnBackward0", "custom step", "hipster"])
def test_these_are_no_calls_of_the_runtime(name: str) -> None:
    assert not is_runtime_call(name)
