"""Steps priced side by side and added up; parts of a job on one device, or on several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from placer.decision import best_count, gather, total
from placer.decision.apart import best_apart
from placer.decision.comparison import THREADS_TIE, PricedPart, Table, compare, trace_parts, workload_key
from placer.errors import PlacerError
from placer.pricing import Prediction
from placer.profile import DeviceFit, Profile
from placer.tracing import trace
from placer.workload import make_workload

Make = Callable[..., Prediction]


def table(profile: Profile, devices: tuple[str, ...] | None = None, threads: str = "keep") -> Table:
    traced = trace_parts(make_workload(nn.Linear(8, 8), (4, 8), mode="train"))
    return compare(traced, gather(profile, devices, threads=threads, here=False))


def test_here_the_cpu_runs_with_the_threads_of_the_process(handmade_profile: Profile) -> None:
    """It is priced with the nearest number that was calibrated; elsewhere it runs with the one that was."""
    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(replace(cpu, threads=5), cuda))
    other = replace(profile, fingerprint={**profile.fingerprint, "cpu": "Z80"})
    torch.set_num_threads(4)
    assert [table(each, ("cpu",)).costs["cpu"].threads for each in (profile, other)] == [4, 5]


@pytest.mark.parametrize(("times", "chosen", "said"), [
    ((1e-9, 1e-3), 3, ", with 3 threads: with 2 a step would take "),
    ((1e-3, 1e-9), 2, ", with 2 threads: the best of 2 and 3"),
])  # fmt: skip
def test_numbers_of_threads_are_compared_where_that_is_asked_for(
    handmade_profile: Profile, times: tuple[float, float], chosen: int, said: str
) -> None:
    cpu, cuda = handmade_profile.fits
    torch.set_num_threads(2)
    three, two = (replace(cpu, rates={**cpu.rates, "dispatch_seconds": seconds}) for seconds in times)
    profile = replace(handmade_profile, fits=(replace(three, threads=3), replace(two, threads=2), cuda))
    kept, tuned = table(profile), table(profile, ("cpu",), "tune")
    assert (kept.thread_options, kept.costs["cpu"].threads, tuned.costs["cpu"].threads) == ((), 2, chosen)
    assert [(each.threads, each.current) for each in tuned.thread_options] == [(2, True), (3, False)]
    assert said in tuned.decide().reason
    assert table(profile, ("cuda",), "tune").thread_options == ()


def test_the_present_number_of_threads_is_kept_in_a_tie() -> None:
    assert best_count({1: 2.0, 2: 1.0, 4: 1.5}, now=4) == 2
    assert best_count({1: 1.0, 2: 1.0}, now=8) == 1
    assert [best_count({1: 1.0 - share * THREADS_TIE, 2: 1.0}, now=2) for share in (0.9, 1.1)] == [2, 1]


def test_a_device_that_lacks_the_dtype_is_left_out(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(cpu, replace(cuda, device="mps")))
    workload = make_workload(nn.Linear(4, 2, dtype=torch.float64), batch=torch.ones(3, 4, dtype=torch.float64))
    told = "mps is left out: mps has no float64: use float32"
    found = compare(trace_parts(workload), gather(profile, None, here=False))
    assert (list(found.costs), found.left_out) == (["cpu"], (told,))
    assert told in found.decide().reason
    with pytest.raises(PlacerError, match=f"no device can run it; {told}"):
        compare(trace_parts(workload), gather(profile, ("mps",), here=False))


def test_a_device_that_lacks_an_op_is_left_out_unless_the_cpu_may_run_it(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Eigenvalues(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.linalg.eigh(x)[0]
            return found

    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(cpu, replace(cuda, device="mps")))
    workload = make_workload(Eigenvalues(), (4, 4), mode="infer")
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    found = compare(trace_parts(workload), gather(profile, None, here=False))
    assert list(found.costs) == ["cpu"]
    assert "mps has no aten::_linalg_eigh, and PYTORCH_ENABLE_MPS_FALLBACK is not set to 1" in found.left_out[0]
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    assert list(compare(trace_parts(workload), gather(profile, None, here=False)).costs) == ["cpu", "mps"]


def test_steps_of_other_layouts_or_other_ops_on_the_accelerator_have_another_key() -> None:
    def key(model: nn.Module, *shape: int) -> str:
        workload = make_workload(model, shape, mode="infer")
        return workload_key(trace(workload), workload)

    def cast(enabled: bool) -> nn.Module:
        def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.float16, enabled=enabled):
                return nn.functional.linear(x, self.weight)  # type: ignore[arg-type]

        kind: type[nn.Linear] = type("Cast", (nn.Linear,), {"forward": forward})
        return kind(8, 4)

    assert key(cast(True), 2, 8) != key(cast(False), 2, 8) == key(cast(False), 2, 8)
    model = nn.Conv2d(4, 4, 3)
    first = key(model, 2, 4, 8, 8)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert key(model, 2, 4, 8, 8) != first


# --- a job on one device ----------------------------------------------------------------------------------------------


def test_times_and_their_intervals_add_up(make_prediction: Make) -> None:
    short, long = make_prediction(step=1e-3), make_prediction(step=5e-3, coverage=0.4, provenance="published")
    found = total("cpu", 2, [(10, short), (2.5, long)], repeats=4)
    assert found.step_seconds == pytest.approx(0.0225)
    assert (found.low, found.high) == pytest.approx((0.0225 / 1.2, 0.0225 * 1.2))
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert found.coverage == pytest.approx((0.01 + 0.4 * 0.0125) / 0.0225)
    assert (found.provenance, found.total_seconds) == ("published", pytest.approx(4 * 0.0225))


def test_what_is_paid_once_is_paid_once(make_prediction: Make) -> None:
    first = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.1}, peak_memory_bytes=10)
    second = make_prediction("cuda", one_time={"context": 2.0, "weights": 0.3}, peak_memory_bytes=30)
    shared, own = (total("cuda", 2, [(1, first), (1, second)], models=models) for models in ((0, 0), (0, 1)))
    assert (shared.one_time_seconds, own.one_time_seconds) == pytest.approx((2.3, 2.4))
    assert (shared.peak_memory_bytes, own.peak_memory_bytes) == (30, 40)
    compiled = make_prediction(one_time={"compiler": 6.0, "compilation": 2.0})
    assert total("cpu", 2, [(1, compiled), (1, compiled)]).one_time_seconds == pytest.approx(10.0)
    large = make_prediction("cuda", peak_memory_bytes=30, available_memory_bytes=50)
    assert total("cuda", 2, [(1, large), (1, large)]).fits
    assert not total("cuda", 2, [(1, large), (1, large)], models=("a", "b")).fits


# --- its parts apart --------------------------------------------------------------------------------------------------

RATES = {
    f"copy/{direction}/pageable/{what}": value
    for direction in ("h2d", "d2h")
    for what, value in (("seconds_per_tensor", 1e-5), ("bytes_per_second", 1e9))
}
GPU = DeviceFit("cuda", 2, RATES, {}, {}, {})
Step = Callable[..., PricedPart]


@pytest.fixture
def step(make_prediction: Make) -> Step:
    def make(name: str, cpu: float, cuda: float, *, count: float = 1, model: int = 0, mode: str = "train",
             placeable: bool = True, **values: Any) -> PricedPart:  # fmt: skip
        def predicted(device: str, seconds: float) -> Prediction:
            found = make_prediction(device, seconds, **values)
            trace = replace(found.priced.trace, mode=mode)  # type: ignore[arg-type]
            return replace(found, priced=replace(found.priced, trace=trace, fit=GPU if device == "cuda" else None))

        both: Mapping[str, Prediction] = {"cpu": predicted("cpu", cpu), "cuda": predicted("cuda", cuda)}
        return PricedPart(name, count, both, {}, model, placeable)

    return make


def test_each_part_goes_where_it_is_fastest_and_weights_follow(step: Step) -> None:
    rollout, update = step("rollout", 1e-4, 1e-3, count=100, mode="infer"), step("update", 0.1, 0.01)
    found = best_apart([rollout, update], placeable=True)
    assert found is not None
    assert found.devices == {"rollout": "cpu", "update": "cuda"}
    assert found.exchange_bytes == 64  # one weight of 4 x 4 float32
    assert found.exchange_seconds == pytest.approx(1e-5 + 64e-9)
    assert found.step_seconds == pytest.approx(0.01 + 0.01 + found.exchange_seconds)
    no_copy = replace(rollout, movable=False)  # a step function cannot run a copy
    assert best_apart([no_copy, update]) is not None
    assert best_apart([no_copy, update], placeable=True) is None


def test_models_without_a_common_weight_exchange_nothing(step: Step) -> None:
    a, b = step("a", 1e-3, 1e-2, model=1), step("b", 1e-2, 1e-3, model=2, one_time={"context": 2.0})
    found = best_apart([a, b], 3)
    assert found is not None
    assert (found.exchange_seconds, found.exchange_bytes) == (0.0, 0)
    assert found.seconds(3) == pytest.approx(2.0 + 3 * found.step_seconds)
    assert best_apart([replace(a, model=2), b]) is None  # parts that train one model stay together


def test_many_parts_are_shared_out_quickly(step: Step) -> None:
    found = best_apart([step(f"p{i}", 1e-3 * (1 + i % 2), 1e-3 * (2 - i % 2), model=i) for i in range(30)])
    assert found is not None
    assert found.step_seconds == pytest.approx(30e-3)


def test_what_does_not_fit_or_run_on_a_device_stays_away(step: Step) -> None:
    assert best_apart([step("a", 1e-3, 1e-4, model=1, fits=False), step("b", 1e-3, 1e-4, model=2)]) is None
    room: dict[str, Any] = {"peak_memory_bytes": 10, "available_memory_bytes": 16}
    both = [step("a", 1e-2, 1e-3, model=1, **room), step("b", 1e-2, 1e-3, model=2, **room),
            step("c", 1e-3, 1e-2, model=3, peak_memory_bytes=1)]  # fmt: skip
    found = best_apart(both)
    assert found is not None
    assert sorted(found.devices.values()) == ["cpu", "cpu", "cuda"]
    quantized = step("quantized", 1e-2, 1e-3, model=1)
    quantized = replace(quantized, predictions={"cpu": quantized.predictions["cpu"]})
    own = best_apart([quantized, step("training", 1e-1, 1e-3, model=2)])
    assert own is not None
    assert own.devices == {"quantized": "cpu", "training": "cuda"}


def test_devices_of_two_machines_are_not_mixed(step: Step) -> None:
    def on(found: PricedPart, name: str, device: str) -> PricedPart:
        prediction = replace(found.predictions[device], device=name)
        return replace(found, predictions={**found.predictions, name: prediction})

    steps = [step("a", 1e-2, 2e-2, model=1), step("b", 2e-2, 1e-2, model=2)]
    steps = [on(on(one, "cpu@other", "cpu"), "cuda@other", "cuda") for one in steps]
    found = best_apart(steps)
    assert found is not None
    assert {name.partition("@")[2] for name in found.devices.values()} in ({""}, {"other"})
