"""Which device a request of each size belongs to, beside the simulated accelerator."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from on_simulated.two_devices import large
from simulated.device import SimulatedDevice
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import placer
from placer import tracing

CPU, SIM = torch.device("cpu"), torch.device("sim", 0)


def chosen(profile: Path, model: nn.Module | None = None, **options: Any) -> placer.Placement:
    """For inference on eight rows."""
    return placer.choose(large() if model is None else model, (8, 256), mode="infer", profile=profile, **options)


def forbid_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "trace", lambda workload: pytest.fail("something was traced"))


def test_no_mode_of_the_callers_sees_the_question(device: SimulatedDevice, profile_file: Path) -> None:
    class Functions(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(torch.overrides.resolve_name(function))
            return function(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    model, batch = large(), torch.ones(8, 256)
    with Functions(), Operations():
        placement = placer.choose(model, batch, mode="infer", profile=profile_file, move=False)
    assert not [name for name in seen if "empty" in name]
    assert len(placement.turns) > 1


def test_a_request_goes_where_choose_would_put_it(device: SimulatedDevice, profile_file: Path) -> None:
    """The smallest ones do not pay the copies, and the largest ones have no room on the accelerator."""
    model = large()
    placement = chosen(profile_file, model)
    assert [where for _, where in placement.turns] == [CPU, SIM, CPU]
    copies = {where: copy.deepcopy(model).to(where) for _, where in placement.turns}
    for first, _ in placement.turns[1:]:
        for size in (round(0.7 * first), round(1.3 * first)):
            of_size = placer.choose(large(), (size, 256), mode="infer", profile=profile_file, move=False)
            assert placement.for_batch(size) == of_size.device
    for rows in (1, 8):
        x = torch.ones(rows, 256)
        where = placement.for_batch(x)
        assert where == placement.for_batch((x, {"mask": x[:, 0]})) == placement.for_batch(rows)
        assert copies[where](x.to(where)).shape == (rows, 10)


def test_an_odd_request_gets_a_device(device: SimulatedDevice, profile_file: Path) -> None:
    model = large()
    placement = chosen(profile_file, model)
    assert placement.device == SIM
    x = torch.ones(8, 256)
    assert placement.for_batch(0) == placement.for_batch(-3) == placement.for_batch(x[:0]) == CPU
    assert placement.for_batch(10**12) == CPU
    for odd in (None, "text", 3.5, [], object(), x.sum(), (x, x[:1])):
        assert placement.for_batch(odd) == SIM


def test_a_lookup_neither_traces_nor_allocates(
    device: SimulatedDevice, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = large()
    placement = chosen(profile_file, model)
    with ThreadPoolExecutor(8) as threads:  # which all ask before anything is priced
        assert set(threads.map(placement.for_batch, [1] * 32)) == {CPU}
    forbid_tracing(monkeypatch)
    x = torch.ones(8, 256)
    placement.for_batch(x)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(1000):
            placement.for_batch(x)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 2048
    assert after - before < 512
    assert pickle.loads(pickle.dumps(placement)).turns == placement.turns


def test_where_nothing_can_turn_every_request_goes_to_the_device(
    device: SimulatedDevice, profile_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_cpu, model = chosen(profile_file, devices="cpu"), large()
    of_a_function = placer.choose(
        lambda x: model(x), (8, 256), modules=model, mode="infer", profile=profile_file, move=False
    )
    monkeypatch.setenv("PLACER_DEVICE", "sim")
    forced = chosen(profile_file)
    forbid_tracing(monkeypatch)
    for placement, where in ((only_cpu, CPU), (of_a_function, of_a_function.device), (forced, SIM)):
        assert placement.turns == ((1, where),)
        assert placement.for_batch(10**6) == placement.for_batch(torch.ones(1, 256)) == where


def test_what_stays_on_one_device_says_so(device: SimulatedDevice, profile_file: Path) -> None:
    trained = placer.choose(large(), (8, 256), mode="train", profile=profile_file, move=False)
    job = placer.choose(placer.Job([placer.Part("one", large(), (8, 256))]), profile=profile_file, move=False)
    for placement in (trained, job):
        with pytest.raises(placer.PlacerError, match="stays on one device: for requests, call choose with"):
            placement.for_batch(8)


def test_an_answer_keeps_no_model_alive(device: SimulatedDevice, profile_file: Path) -> None:
    model = large()
    placement = chosen(profile_file, model, move=False)
    in_a_worker = pickle.loads(pickle.dumps(placement))
    gone = weakref.ref(model)
    del model
    assert gone() is None
    for asked_late in (placement, in_a_worker):
        with pytest.raises(placer.PlacerError, match="is gone: ask for turns before"):
            asked_late.for_batch(8)
