"""A step on two devices: its limits, what crosses between them, and what each of them needs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.pricing import Residence, Span, on_both, predict, predict_split
from placer.pricing.prediction import Prediction
from placer.pricing.split_trace import split_trace
from placer.profile.profile import Profile
from placer.tracing import Trace, trace
from placer.workload import Workload, check_on_cpu, cpu_part, make_workload

ELSEWHERE = Residence(here=False)
BATCH, WIDTH, ROWS = 256, 16, 1000


class Recommender(nn.Module):
    """Tables whose row numbers are columns of one tensor, a tower on numbers, and a head on both."""

    def __init__(self, tables: int = 3, *, sparse: bool = False) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse) for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.head = nn.Sequential(nn.Linear(WIDTH * (tables + 1), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
        bottom = self.bottom(numbers)
        found = [table(rows[:, n : n + 1]) for n, table in enumerate(self.tables)]
        result: Tensor = self.head(torch.cat([bottom, *found], 1))
        return result


class Words(nn.Module):
    """A table, which takes no memory here, and a layer."""

    def __init__(self, rows: int, *, sparse: bool = False) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(rows, 64, sparse=sparse, device="meta"), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.words(x))
        return result


class Chain(nn.Module):
    """A module without work, then layers one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Identity()
        self.first, self.second = nn.Linear(32, 64), nn.Sequential(nn.Linear(64, 48), nn.ReLU())
        self.third = nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.third(self.second(self.first(self.idle(x))))
        return result


def rows(batch: int = BATCH, tables: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 13), torch.randint(0, ROWS, (batch, tables))


def divided(model: nn.Module, names: Any, shape: Any = None, **values: Any) -> tuple[Workload, Trace]:
    workload = make_workload(model, shape, **values)
    workload = dataclasses.replace(workload, on_cpu=check_on_cpu(names, workload))
    return workload, trace(workload)


def priced(known: Profile, workload: Workload, traced: Trace, **values: Any) -> Prediction:
    where = {"residence": ELSEWHERE, "host_residence": ELSEWHERE, **values}
    return predict_split(
        traced, cpu_part(workload), "cuda", known, known, data=workload.data, steps=workload.steps, **where
    )  # fmt: skip


def alone(known: Profile, workload: Workload, traced: Trace) -> dict[str, Prediction]:
    return predict(traced, known, devices=("cpu", "cuda"), data=workload.data, residence=ELSEWHERE)


def test_with_nothing_on_the_cpu_it_is_the_accelerators_step(handmade_profile: Profile) -> None:
    workload, traced = divided(Chain(), "idle", (BATCH, 32))
    found, cuda = priced(handmade_profile, workload, traced), alone(handmade_profile, workload, traced)["cuda"]
    assert found.device == "cuda+cpu"
    assert found.step_seconds == pytest.approx(cuda.step_seconds)
    assert (found.low, found.high) == (pytest.approx(cuda.low), pytest.approx(cuda.high))
    assert found.peak_memory_bytes == cuda.peak_memory_bytes
    assert found.one_time == pytest.approx(cuda.one_time)
    assert found.bounded_by == cuda.bounded_by


def test_with_all_but_a_little_on_the_cpu_it_is_the_cpus_step_and_the_copies(handmade_profile: Profile) -> None:
    workload, traced = divided(Chain(), ["first", "second"], (65536, 32))
    found, cpu = priced(handmade_profile, workload, traced), alone(handmade_profile, workload, traced)["cpu"]
    assert found.step_seconds - found.components["copy"] == pytest.approx(cpu.step_seconds, rel=0.1)
    assert found.threads == cpu.threads


def test_the_frameworks_time_on_the_cpu_lies_between_its_ops(handmade_profile: Profile) -> None:
    """It is the host's, once for each of the CPU's ops; each op is shown once on the host's clock."""
    cpu, cuda = handmade_profile.fits
    slow = dataclasses.replace(handmade_profile, fits=(dataclasses.replace(cpu, framework={"forward_op": 1e-3}), cuda))
    workload, traced = divided(Chain(), ["first", "second"], (4096, 32), mode="infer")
    before, after = priced(handmade_profile, workload, traced), priced(slow, workload, traced)
    assert after.priced.split is not None
    ops = len(after.priced.split.cpu.trace.calls)
    assert after.step_seconds - before.step_seconds == pytest.approx(ops * 1e-3)
    spans: list[Span] = []
    on_both(after.priced.split, data="host", spans=spans)
    calls = [span.call for span in spans if span.lane == "host" and span.call >= 0]
    assert sorted(calls) == list(range(len(traced.calls)))


def test_a_step_is_bounded_by_what_either_device_is(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    weak = dataclasses.replace(cpu, rates={**cpu.rates, "flops/float32": 1e8})
    workload, traced = divided(Chain(), ["first", "second"], (256, 32))
    found = priced(dataclasses.replace(handmade_profile, fits=(weak, cuda)), workload, traced)
    assert found.bounded_by == "arithmetic"


def test_values_are_read_where_they_are_made() -> None:
    class Read(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = super().forward(x)
            return y * float(y.sum())

    model = Chain()
    model.second = Read(nn.Linear(64, 48))
    for names, syncs in (("second", (1, 0)), ("first", (0, 1))):
        workload, traced = divided(model, names, (BATCH, 32), mode="infer")
        found = split_trace(traced, cpu_part(workload), "host")
        assert (found.cpu.syncs, found.accelerator.syncs) == syncs


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("data", ["host", "pinned", "device"])
def test_components_add_up_and_ops_add_up_to_compute(handmade_profile: Profile, mode: str, data: str) -> None:
    workload, traced = divided(Recommender(), "tables", example=rows(), mode=mode, data=data)
    found = priced(handmade_profile, workload, traced)
    assert sum(found.components.values()) == pytest.approx(found.step_seconds)
    assert sum(found.priced.seconds) == pytest.approx(found.components["compute"])
    assert found.low < found.step_seconds < found.high
    assert found.components.get("overlap", 0.0) <= 0.0


def test_every_table_sends_its_rows_and_gets_their_gradients(handmade_profile: Profile) -> None:
    workload, traced = divided(Recommender(), "tables", example=rows())
    crossings = split_trace(traced, cpu_part(workload), "host").crossings
    size = BATCH * WIDTH * 4
    assert [(c.to_cpu, c.nbytes) for c in crossings] == [(False, size)] * 3 + [(True, size)] * 3
    copies = 1e-5 * (6 + 1) + (6 * size + BATCH * 13 * 4) / 5e9  # and the numbers, not the row numbers
    assert priced(handmade_profile, workload, traced).components["copy"] == pytest.approx(copies)


def test_a_layer_between_others_gets_and_sends_both_ways() -> None:
    workload, traced = divided(Chain(), "second", (BATCH, 32))
    crossings = split_trace(traced, cpu_part(workload), "host").crossings
    into, out = BATCH * 64 * 4, BATCH * 48 * 4
    assert [(c.to_cpu, c.nbytes) for c in crossings] == [(True, into), (False, out), (True, out), (False, into)]


def test_a_step_that_has_to_run_to_be_traced_crosses_the_same() -> None:
    class Reads(Chain):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = super().forward(x)
            float(result.sum())
            return result

    found = []
    for model in (Chain(), Reads()):
        workload, traced = divided(model, "second", (BATCH, 32))
        assert any("real run" in note for note in traced.notes) is isinstance(model, Reads)
        found.append([(c.to_cpu, c.nbytes) for c in split_trace(traced, cpu_part(workload), "host").crossings])
    assert found[0] == found[1]


def test_an_output_that_the_cpu_makes_is_not_copied_back() -> None:
    workload, traced = divided(Chain(), "third", (BATCH, 32), mode="infer")
    found = split_trace(traced, cpu_part(workload), "host")
    assert [c.to_cpu for c in found.crossings] == [True]
    assert found.accelerator.outputs == ()


@pytest.mark.parametrize(("data", "crossing"), [("host", []), ("device", [True])])
def test_an_input_that_only_the_cpu_reads_is_copied_only_from_the_device(data: str, crossing: list[bool]) -> None:
    workload, traced = divided(Chain(), "first", (BATCH, 32), mode="infer", data=data)
    found = split_trace(traced, cpu_part(workload), data)
    assert [c.to_cpu for c in found.crossings] == [*crossing, False]
    assert found.accelerator.batch == ()


def test_what_prepares_the_cpus_inputs_runs_there() -> None:
    class Shifted(Recommender):
        def forward(self, numbers: Tensor, rows: Tensor) -> Tensor:
            return super().forward(numbers, rows.remainder(7) + torch.arange(rows.shape[1]))

    workload, traced = divided(Shifted(), "tables", example=rows())
    found = split_trace(traced, cpu_part(workload), "host")
    assert [call.op for call in found.cpu.calls[:3]] == ["aten::remainder", "aten::arange", "aten::add"]
    assert all(c.nbytes == BATCH * WIDTH * 4 for c in found.crossings)


def test_devices_overlap_where_the_accelerator_is_busy_while_the_cpu_looks_up(handmade_profile: Profile) -> None:
    slow = dataclasses.replace(handmade_profile.fits[1], rates={**handmade_profile.fits[1].rates, "flops/float32": 1e9})
    known = dataclasses.replace(handmade_profile, fits=(handmade_profile.fits[0], slow))
    workload, traced = divided(Recommender(1), "tables", example=rows(4096, 1), mode="infer")
    found = priced(known, workload, traced)
    lookup = sum(s for c, s in zip(traced.calls, found.priced.seconds, strict=True) if c.layer.startswith("tables"))
    assert -found.components["overlap"] == pytest.approx(lookup, rel=0.1)


def test_memory_and_weights_are_divided(handmade_profile: Profile) -> None:
    workload, traced = divided(Recommender(), "tables", example=rows())
    found = split_trace(traced, cpu_part(workload), "host")
    tables = 3 * ROWS * WIDTH * 4
    assert found.cpu.parameter_bytes == tables
    assert found.cpu.parameter_bytes + found.accelerator.parameter_bytes == traced.parameter_bytes
    assert found.cpu.optimizer_state_bytes == pytest.approx(2 * tables, rel=0.01)
    assert found.cpu.optimizer_state_bytes + found.accelerator.optimizer_state_bytes == traced.optimizer_state_bytes
    prediction = priced(handmade_profile, workload, traced)
    cuda = alone(handmade_profile, workload, traced)["cuda"]
    assert cuda.peak_memory_bytes - prediction.peak_memory_bytes > 4 * tables
    assert prediction.one_time["context"] == cuda.one_time["context"]
    assert prediction.one_time["weights"] < cuda.one_time["weights"]


def test_memory_alive_at_once_is_that_of_the_trace() -> None:
    """The trace's events, replayed with nothing on the CPU, give the peak that the trace has."""
    workload, traced = divided(Chain(), "idle", (BATCH, 32))
    found = split_trace(traced, cpu_part(workload), "host")
    assert found.accelerator.peak_activation_bytes == traced.peak_activation_bytes
    assert found.cpu.peak_activation_bytes == 0


def test_a_table_too_large_for_the_accelerator_fits_beside_it(handmade_profile: Profile) -> None:
    accelerator = {"device": "cuda", "memory_bytes": 600_000_000}
    fingerprint = {**handmade_profile.fingerprint, "memory_bytes": int(1e12), "accelerators": [accelerator]}
    known = dataclasses.replace(handmade_profile, fingerprint=fingerprint)
    workload, traced = divided(Words(1_000_000), "words", example=torch.zeros(8, 4, dtype=torch.int64))
    found, cuda = priced(known, workload, traced), alone(known, workload, traced)["cuda"]
    assert found.peak_memory_bytes < cuda.peak_memory_bytes / 100
    assert (cuda.fits, found.fits) == (False, True)


def test_a_table_too_large_for_the_cpu_does_not_fit(handmade_profile: Profile) -> None:
    fingerprint = {**handmade_profile.fingerprint, "memory_bytes": 10_000_000}
    known = dataclasses.replace(handmade_profile, fingerprint=fingerprint)
    workload, traced = divided(Words(1_000_000), "words", example=torch.zeros(8, 4, dtype=torch.int64))
    found = priced(known, workload, traced)
    assert not found.fits
    assert found.peak_memory_bytes > 1e9 > found.available_memory_bytes == 10_000_000


def test_a_dense_gradient_costs_the_whole_table_and_a_sparse_one_its_rows(handmade_profile: Profile) -> None:
    def step(rows_in_table: int, *, sparse: bool) -> float:
        model = Words(rows_in_table, sparse=sparse)
        workload, traced = divided(model, "words", example=torch.zeros(256, dtype=torch.int64), optimizer="sgd")
        return priced(handmade_profile, workload, traced).step_seconds

    dense = step(1_000_000, sparse=False)
    assert dense > 3 * 1_000_000 * 64 * 4 / 1e10
    assert step(1_000_000, sparse=True) < dense / 50
    assert step(1_000_000, sparse=True) == pytest.approx(step(10_000, sparse=True), rel=0.2)


def test_a_model_on_an_accelerator_brings_the_cpus_share_back(handmade_profile: Profile) -> None:
    workload, traced = divided(Recommender(), "tables", example=rows())
    there = priced(handmade_profile, workload, traced, residence=Residence(home="cuda"))
    assert there.one_time["weights"] == pytest.approx(3e-5 + 3 * ROWS * WIDTH * 4 / 5e9)


def test_a_long_run_and_a_short_one(handmade_profile: Profile) -> None:
    workload, traced = divided(Recommender(), "tables", example=rows(), steps=10)
    found = priced(handmade_profile, workload, traced)
    assert found.total_seconds == pytest.approx(found.one_time_seconds + 10 * found.step_seconds)
