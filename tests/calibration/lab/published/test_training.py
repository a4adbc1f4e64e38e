"""The training of what ships: on made-up times it runs through, and what it writes loads and beats physics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from described import spec
from torch import nn

from placer.calibration.lab.published import fit
from placer.calibration.lab.published.samples import Sample, Table, count, op_samples, rows_counted
from placer.calibration.lab.published.table import PublishedOp
from placer.pricing import Context, describe
from placer.pricing.gpu import device_model
from placer.pricing.gpu.device_model import DeviceModel
from placer.profile import find_gpu
from placer.tracing import OpCall, trace
from placer.workload import make_workload

GPUS = ("Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB")
#: What ops take, by what physics say.
TIMES = {"aten::mm": 1.5, "aten::add": 2.2}


def calls(random: Random) -> Iterator[OpCall]:
    """A product and an addition of random sizes."""
    m, k, n = (int(2 ** random.uniform(5, 12)) for _ in range(3))
    yield OpCall("aten::mm", (spec(m, k), spec(k, n)), (spec(m, n),))
    numbers = spec(int(2 ** random.uniform(12, 26)))
    yield OpCall("aten::add", (numbers, numbers), (numbers,))


def world() -> tuple[list[OpCall], list[Sample]]:
    """The calls of all GPUs, and what was published of them; every fifth is held out."""
    random = Random(0)
    published, made = [], []
    for number in range(200):
        for gpu in GPUS:
            for call in calls(random):
                use = "held out" if number % 5 == 0 else "fit"
                name = call.op.removeprefix("aten::")
                published.append(PublishedOp("made up", gpu, name, "fwd", "", "float32", (call,), 1.0, None, use))
                made.append(call)
    samples = list(op_samples(published))
    table = Table(samples)
    for i, call in enumerate(made):
        ((instance, _),) = table.members[i]
        seconds = table.floor.launch[instance] + TIMES[call.op] * table.floor.seconds[instance]
        samples[i] = replace(samples[i], seconds=float(seconds))
    return made, samples


def test_a_training_writes_what_predicts_better_than_physics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    made, samples = world()
    path = tmp_path / "published.json"
    monkeypatch.setattr(fit, "read_samples", lambda cache: samples)
    fit.main(tmp_path, epochs=60, file=path)
    monkeypatch.setattr(device_model, "FILE", path)
    ratios = []
    try:
        for cached in (device_model.networks, device_model.document):
            cached.cache_clear()
        for call, sample in zip(made, samples, strict=True):
            if sample.use == "held out":
                work = describe(call, Context(0, False))
                ratios.append(DeviceModel(find_gpu(sample.gpu)).price([work])[0][0] / sample.seconds)
        assert DeviceModel(find_gpu("Tesla T4")).provenance == "published"
        assert DeviceModel(find_gpu("NVIDIA L4")).provenance == "data sheet"
    finally:
        for cached in (device_model.networks, device_model.document):
            cached.cache_clear()
    assert np.median(np.abs(np.log(ratios))) < 0.5 * np.log(min(TIMES.values()))


def test_all_ops_of_a_step_are_counted() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)), nn.ReLU(), nn.ReLU())
    counted = count(trace(make_workload(model, (4, 8), mode="infer")))
    assert {row.label: n for row, n in rows_counted(counted)} == {"matmul:addmm": 5, "elementwise:relu": 2}
    assert (counted.launching, counted.batch_bytes) == (7, 4 * 4 * 8)
