"""What the simulated device can be made to do besides its usual self: one test for each option."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from simulated.backend import Backend
from simulated.clock import RealClock
from simulated.device import DEVICE, Device, machine_with
from simulated.spec import SPEC, Spec
from torch import nn

from placer import machine
from placer.calibration.measuring import recording
from placer.calibration.measuring.recording import Recorded, try_recorder

Assemble = Callable[..., Sequence[Device]]


def seconds(device: Device, work: Callable[[], object]) -> float:
    """What ``work`` takes, its kernels warm."""
    work()
    device.synchronize()
    start = device.clock.now
    work()
    device.synchronize()
    return device.clock.now - start


def test_several_devices_have_time_and_memory_of_their_own(assemble: Assemble) -> None:
    first, second, third = assemble(SPEC, SPEC, replace(SPEC, name="larger", memory=2 * SPEC.memory))
    assert machine.accelerators() == ("sim", "sim:1", "sim:2")
    module = torch.get_device_module("sim")
    assert [module.get_device_name(i) for i in range(3)] == ["sim", "sim", "larger"]
    assert module.mem_get_info("sim:2")[1] == 2 * SPEC.memory
    x = torch.ones(4, 8, device="sim:1")
    assert (x.device, (x + x).device, x.new_zeros(2).device) == (torch.device("sim:1"),) * 3
    assert second.memory.used > 0
    assert second.queue.launched > 0
    assert first.memory.used == 0
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(4, 8, device="sim")
    there = x.to("sim:2")
    assert there.device == torch.device("sim:2")
    assert torch.equal(there.cpu(), x.cpu())
    module.set_device(1)
    assert torch.ones(2, device="sim").device == torch.device("sim:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2, device="sim:3")
    assert third.contexts == 1


def test_a_model_is_trained_on_any_of_several_devices(assemble: Assemble) -> None:
    first, second = assemble(SPEC, SPEC)
    model = nn.Linear(8, 4).to("sim:1")
    optimizer = torch.optim.Adam(model.parameters())
    before = first.queue.launched
    model(torch.ones(2, 8).to("sim:1")).sum().backward()
    optimizer.step()
    places = [p.device for p in model.parameters()] + [p.grad.device for p in model.parameters() if p.grad is not None]
    assert places == [torch.device("sim:1")] * 4
    assert first.queue.launched == before
    model.to("sim:0")
    assert {p.device for p in model.parameters()} == {torch.device("sim:0")}
    del second


def test_a_listed_device_that_has_no_kernels_answers_and_runs_nothing(assemble: Assemble) -> None:
    assemble(replace(SPEC, no_kernel="no kernel image is available for execution on the device"), SPEC)
    assert machine.accelerators() == ("sim", "sim:1")
    assert machine.memory("sim")[1] == SPEC.memory
    with pytest.raises(getattr(torch, "AcceleratorError", RuntimeError), match="no kernel image"):
        torch.ones(2, device="sim")
    assert torch.ones(2, device="sim:1").sum().item() == 2.0


def test_an_allocator_keeps_what_was_freed_until_it_is_emptied(assemble: Assemble) -> None:
    size = SPEC.memory // 4
    (device,) = assemble(replace(SPEC, cache=True, context_bytes=1 << 20, held_by_others=2 << 20))
    module = torch.get_device_module("sim")
    held = torch.empty(size, dtype=torch.uint8, device="sim")
    del held
    gc.collect()
    assert (module.memory_allocated(), module.memory_reserved()) == (0, size)
    assert module.mem_get_info() == (SPEC.memory - size - (3 << 20), SPEC.memory)
    again = torch.empty(size, dtype=torch.uint8, device="sim")
    assert (module.memory_allocated(), module.memory_reserved()) == (size, size)
    del again
    module.empty_cache()
    assert module.memory_reserved() == 0
    assert module.mem_get_info()[0] == SPEC.memory - (3 << 20)
    # What is cached does not stand in the way of what is asked for.
    large = torch.empty(2 * size, dtype=torch.uint8, device="sim")
    del large
    torch.empty(3 * size, dtype=torch.uint8, device="sim")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(4 * size, dtype=torch.uint8, device="sim")
    assert device.memory.peak == 3 * size


def test_an_op_may_be_many_kernels_which_start_while_it_is_issued(assemble: Assemble) -> None:
    (device,) = assemble(replace(SPEC, kernels={"_foreach_add_": 20}))
    weights = [torch.ones(8, device="sim") for _ in range(5)]
    torch._foreach_add_(weights, 1.0)
    device.synchronize()
    before, start = device.queue.launched, device.clock.now
    torch._foreach_add_(weights, 1.0)
    assert device.queue.launched == before + 20
    assert device.clock.now - start == pytest.approx(20 * SPEC.issue)
    # The last of them waits for the host only: the device is faster.
    assert device.queue.free_at - device.clock.now == pytest.approx(SPEC.launch + SPEC.kernel, rel=1e-2)


def test_a_recurrent_layer_is_an_op_of_many_kernels(assemble: Assemble) -> None:
    (device,) = assemble(SPEC)
    layer = nn.LSTM(4, 4).to("sim")
    before = device.queue.launched
    layer(torch.ones(10, 2, 4, device="sim"))
    assert device.queue.launched - before > 20  # two and more for each time step


def test_tf32_and_narrow_dtypes_have_rates_of_their_own(assemble: Assemble) -> None:
    fast = replace(SPEC, kernel=0.0, flops=1e10, flops_tf32=4e10, flops_bfloat16=8e10, flops_float16=16e10)
    (device,) = assemble(fast)
    a = torch.ones(512, 512, device="sim")
    work = 2 * 512**3

    def rate(x: torch.Tensor) -> float:
        return work / (seconds(device, lambda: x @ x) - SPEC.issue - SPEC.launch - SPEC.sync)

    assert rate(a) == pytest.approx(fast.flops, rel=0.01)
    torch.set_float32_matmul_precision("high")
    try:
        assert rate(a) == pytest.approx(fast.flops_tf32, rel=0.01)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert rate(a.bfloat16()) == pytest.approx(fast.flops_bfloat16, rel=0.01)
    assert rate(a.half()) == pytest.approx(fast.flops_float16, rel=0.01)
    # As on CUDA, convolutions use TF32 unless told otherwise.
    convolution = nn.Conv2d(64, 64, 3, padding=1, bias=False).to("sim")
    x = torch.ones(4, 64, 16, 16, device="sim")
    took = seconds(device, lambda: convolution(x)) - SPEC.issue - SPEC.launch - SPEC.sync
    assert 2 * 4 * 16 * 16 * 64 * 64 * 9 / took == pytest.approx(fast.flops_tf32, rel=0.05)


def test_autocast_multiplies_in_the_narrow_dtype_and_trains(assemble: Assemble) -> None:
    assemble(replace(SPEC, flops_bfloat16=8e11))
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to("sim")
    x = torch.randn(4, 8, device="sim")
    with torch.autocast("sim", dtype=torch.bfloat16):
        hidden = model[0](x)
        normal = model[1](hidden)
        out = model[2](normal)
    assert (hidden.dtype, normal.dtype, out.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)
    out.float().sum().backward()
    gradient = model[0].weight.grad
    assert gradient is not None
    assert gradient.dtype == torch.float32
    assert model(x).dtype == torch.float32


def test_on_a_real_clock_the_host_really_takes_the_time_of_an_op() -> None:
    with machine_with(replace(SPEC, issue=2e-3)), DEVICE.on(RealClock()) as clock:
        x = torch.ones(4, device="sim")
        start = clock.now
        for _ in range(5):
            x.neg_()
        assert clock.now - start >= 5 * 2e-3


def test_options_of_child_processes_come_by_the_environment() -> None:
    assert Spec.of({"cache": True, "memory": 100}) == replace(SPEC, cache=True, memory=100)
    with pytest.raises(ValueError, match="no option of the simulated device: colour"):
        Spec.of({"colour": "red"})


def test_afterwards_the_usual_device_is_back() -> None:
    with machine_with(replace(SPEC, name="other"), SPEC):
        assert Backend().device_count() == 2
    assert DEVICE.spec is SPEC
    assert Backend().device_count() == 1


def session(work: Callable[[], object]) -> list[Recorded]:
    """The steps that one session of the recorder shows."""

    def timed() -> float:
        work()
        return 1.0

    return [run for run, _ in recording.record(timed, 2, accelerated=True)]


def test_the_recorder_shows_the_kernels_of_a_device_that_it_knows(
    assemble: Assemble, recorder_shows_sim: None
) -> None:
    assemble(replace(SPEC, profiled=True, kernels={"mm": 3}))
    a = torch.ones(64, 64, device="sim", requires_grad=True)

    def step() -> None:
        (a @ a).sum().backward()

    step()
    run = session(step)[-1]
    product = next(event for event in run.events if event.name == "aten::mm")
    assert product.kernels == 3
    assert product.device_seconds == pytest.approx(3 * SPEC.kernel + 2 * 64**3 / SPEC.flops, rel=1e-3)
    backward = next(event for event in run.events if event.name == "MmBackward0")
    assert backward.kernels == 6
    assert (run.launches > 10, run.lost) == (True, 0)
    assert try_recorder("sim").sees


def test_a_recorder_may_lose_the_first_kernels_of_a_session_one_more_each_time(
    assemble: Assemble, recorder_shows_sim: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble(replace(SPEC, profiled=True, loses_kernels=True))
    x = torch.ones(8, device="sim")
    x.neg_()
    # Without kernels to give away.
    monkeypatch.setattr(recording, "give_away_kernels", lambda *_: None)
    assert [sum(run.lost for run in session(x.neg_)) for _ in range(4)] == [0, 1, 2, 2]


def test_kernels_given_away_at_the_head_of_a_session_are_those_that_are_lost(
    assemble: Assemble, recorder_shows_sim: None
) -> None:
    assemble(replace(SPEC, profiled=True, loses_kernels=True))
    x = torch.ones(8, device="sim")
    x.neg_()
    for _ in range(2 * recording.GIVEN_AWAY):
        runs = session(x.neg_)
        assert [run.lost for run in runs] == [0, 0]
        assert [run.launches for run in runs] == [1, 1]
