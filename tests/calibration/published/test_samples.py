"""Samples: what of a published time is the device's, what is left out, and what is in no fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placer.calibration.published import samples
from placer.calibration.published.counted_step import CountedStep
from placer.calibration.published.networks import NotBuilt
from placer.calibration.published.samples import (
    FOLDS,
    HELD_OUT_GPUS,
    UNLICENSED,
    Table,
    base_network,
    catalog_gpu,
    dtype_of,
    fitted_to,
    fold,
    op_samples,
    step_samples,
)
from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import PublishedStep
from placer.pricing.gpu import LAUNCH
from placer.profile import find_gpu
from placer.tracing import OpCall

from .synthetic import (
    elementwise,
    op_sample,
    physics,
    product,
    published_op,
    published_step,
    row,
    spec,
    step_sample,
    truth,
)


def test_a_time_of_kernels_alone_has_no_share_of_the_host() -> None:
    call = product(512, 512, 512)
    (sample,) = op_samples([published_op(call, 2e-4)])
    assert (sample.seconds, sample.offset, sample.device_seconds) == (2e-4, 0.0, 2e-4)
    assert (sample.gpu, sample.is_step, sample.device_bound, sample.step) == ("Tesla T4", False, True, None)
    assert sample.rows == ((row(call), "float32", 1),)
    assert sample.group == ("made up", "mm", "fwd", "float32")


def test_the_hosts_share_is_found_in_times_of_small_ops() -> None:
    """max(a, a / 2 + kernels) with a of 30 us: of what is shown, half of it is taken off."""
    host = 30e-6
    sizes = [64, 128, 256, 512, 1024, 2048, 2**22, 2**23, 2**24, 2**25, 2**26]
    ops = []
    for size in sizes:
        call = elementwise("add", size)
        kernels = truth(row(call), "Tesla T4") - LAUNCH
        ops.append(published_op(call, max(host, host / 2.0 + kernels), includes_host=True))
    found = op_samples(ops)
    assert [sample.rows[0][0].columns[2] for sample in found] == sizes[6:]
    for sample in found:
        assert sample.offset == pytest.approx(host / 2.0 - LAUNCH)
        assert sample.device_seconds == pytest.approx(truth(sample.rows[0][0], "Tesla T4"))


def test_ops_without_small_ones_share_the_floor_of_their_source_and_gpu() -> None:
    small = [published_op(elementwise("add", n), 20e-6, includes_host=True) for n in (8, 16, 32, 64, 128)]
    large = published_op(product(2048, 2048, 2048), 6e-3, includes_host=True)
    backward = dataclasses.replace(large, phase="bwd")
    elsewhere = dataclasses.replace(large, source="another")
    offsets = {(s.source, s.group[2]): s.offset for s in op_samples([*small, large, backward, elsewhere])}
    assert offsets == {
        ("made up", "fwd"): pytest.approx(10e-6 - LAUNCH), ("made up", "bwd"): pytest.approx(15e-6 - LAUNCH),
        ("another", "fwd"): pytest.approx(12.5e-6 - LAUNCH),
    }  # fmt: skip


@pytest.mark.parametrize(("times", "kept"), [(0.1, False), (0.5, True), (1.0, True), (30.0, True), (100.0, False)])
def test_implausible_times_are_left_out(times: float, kept: bool) -> None:
    call = product(2048, 2048, 2048)
    seconds = times * (LAUNCH + physics(row(call), "Tesla T4"))
    assert bool(op_samples([published_op(call, seconds)])) == kept


def test_an_op_without_a_kernel_is_no_sample() -> None:
    x = spec(4, 4)
    assert op_samples([published_op(OpCall("aten::t", (x,), (x,), view=True), 1e-5)]) == []


def test_halves_of_a_gradient() -> None:
    image, weight, out = spec(8, 64, 56, 56), spec(64, 64, 3, 3), spec(8, 64, 56, 56)
    args = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    call = OpCall("aten::convolution_backward", (out, image, weight), (image, weight), args)
    for part, flags in (("weight", (0.0, 1.0)), ("input", (1.0, 0.0))):
        (sample,) = op_samples([published_op(call, 1e-3, op="conv2d", phase="bwd", part=part)])
        ((one, _, _),) = sample.rows
        assert one.columns[7:9] == flags
    (whole,) = op_samples([published_op(call, 2e-3, op="conv2d", phase="bwd")])
    assert len(whole.rows) == 2
    x, w = spec(50, 32, 512), spec(2048, 512)
    layer = OpCall("aten::lstm_backward", (x, w, w), (x,), (50,))
    (half,) = op_samples([published_op(layer, 5e-3, op="lstm", phase="bwd", part="weight")])
    assert half.rows[0][0].label == "recurrent:lstm_backward_weight"
    assert half.rows[0][0].columns[0] == row(layer).columns[0] / 2.0


def test_convolutions_of_sources_that_leave_cudnns_default_run_in_tf32() -> None:
    image, weight = spec(8, 64, 56, 56), spec(64, 64, 3, 3)
    call = OpCall("aten::convolution", (image, weight), (image,), ((1, 1), (1, 1), (1, 1), False, (0, 0), 1))
    for source, dtype in (("triosim-trace", "tf32"), ("triosim-sample", "tf32"), ("kineto-samples", "float32")):
        (sample,) = op_samples([published_op(call, 1e-3, source=source, op="conv2d", gpu="NVIDIA A100-SXM4-40GB")])
        assert sample.rows[0][1] == dtype
    (linear,) = op_samples([published_op(product(512, 512, 512), 1e-4, source="triosim-trace")])
    assert linear.rows[0][1] == "float32"


def test_folds_are_stable() -> None:
    assert [fold(text) for text in ("resnet50", "vgg16", "bert-large", "alexnet", "gpt2")] == [1, 1, 0, 1, 2]
    shares = np.bincount([fold(str(i)) for i in range(2000)], minlength=FOLDS) / 2000
    assert shares == pytest.approx([1 / FOLDS] * FOLDS, abs=0.04)


def test_a_shape_is_held_out_on_every_gpu_or_on_none() -> None:
    calls = [product(64 * i, 512, 512) for i in range(1, 60)]
    held = {}
    for gpu in ("Tesla T4", "Tesla V100-SXM2-16GB"):
        ops = [published_op(call, 2.0 * (LAUNCH + physics(row(call), gpu)), gpu=gpu) for call in calls]
        held[gpu] = [sample.held_out for sample in op_samples(ops)]
    assert held["Tesla T4"] == held["Tesla V100-SXM2-16GB"]
    assert 0.05 < np.mean(held["Tesla T4"]) < 0.4


def test_a_network_is_one_whatever_its_source_and_weights() -> None:
    assert base_network("timm:resnet50.a1_in1k") == base_network("torchvision:resnet50") == "resnet50"
    assert base_network("transformers:Bert-Large") == "bert-large"


def test_every_row_of_a_table_is_described_once() -> None:
    add, large = elementwise("add", 4096), product(256, 256, 256)
    step = step_sample([(add, 3), (large, 2)], "Tesla T4")
    whole = [op_sample(add, "Tesla T4"), step, op_sample(add, "Tesla V100-SXM2-16GB")]
    table = Table(whole)
    assert table.members == [[(0, 1)], [(0, 3), (1, 2)], [(2, 1)]]
    assert [(row.kind, gpu) for row, gpu, _ in table.instances] == [
        ("memory", "Tesla T4"), ("product", "Tesla T4"), ("memory", "Tesla V100-SXM2-16GB"),
    ]  # fmt: skip
    assert table.seconds == pytest.approx([physics(row(add), "Tesla T4"), physics(row(large), "Tesla T4"),
                                           physics(row(add), "Tesla V100-SXM2-16GB")])  # fmt: skip
    assert {kind: len(x) for kind, x in table.inputs.items()} == {"memory": 2, "product": 1}
    assert sorted(table.position[[0, 2]]) == [0, 1]
    assert samples.physics(whole)[1] == pytest.approx(5 * LAUNCH + 3 * table.seconds[0] + 2 * table.seconds[1])


# --- steps -----------------------------------------------------------------------------------------------------------


def sampled(monkeypatch: pytest.MonkeyPatch, step: PublishedStep, ops: int = 10) -> Any:
    counts = CountedStep(((row(product(64, 64, 64)), 4),), ops, 0, 8_000_000)
    monkeypatch.setattr(samples, "counted", lambda step, cache: counts)
    (found,), left_out = step_samples([step], None)
    assert not left_out
    return found


def test_a_batch_on_the_host_is_copied_inside_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    step = published_step("torchvision:vgg16", (8, 3, 224, 224))
    found = sampled(monkeypatch, step)
    assert found.offset == pytest.approx(8e6 / 5e9 + 1.5e-4)
    assert found.rows == ((row(product(64, 64, 64)), "float32", 4),)
    assert (found.is_step, found.gpu, found.step) == (True, "Tesla V100-SXM2-16GB", step)
    assert sampled(monkeypatch, dataclasses.replace(step, copies="device")).offset == 0.0
    assert sampled(monkeypatch, dataclasses.replace(step, gpu="A100")).offset == pytest.approx(8e6 / 8e9 + 1.5e-4)


def test_a_step_that_a_slow_host_may_bound_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    step = published_step("torchvision:vgg16", (8, 3, 224, 224), seconds=0.01, copies="device")
    assert sampled(monkeypatch, step, ops=100).device_bound
    assert not sampled(monkeypatch, step, ops=250).device_bound
    # This source is held to less, its hosts being slower.
    assert not sampled(monkeypatch, step, ops=200).device_bound
    assert sampled(monkeypatch, dataclasses.replace(step, source="timm"), ops=200).device_bound


def test_what_no_fit_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    step = published_step("torchvision:vgg16", (8, 3, 224, 224))
    assert not sampled(monkeypatch, step).held_out
    assert sampled(monkeypatch, dataclasses.replace(step, network="torchvision:densenet169")).held_out
    for gpu in HELD_OUT_GPUS:
        assert sampled(monkeypatch, dataclasses.replace(step, gpu=gpu)).held_out_gpu
    assert not sampled(monkeypatch, step).held_out_gpu


def test_steps_that_cannot_be_counted_are_counted_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(step: PublishedStep, cache: Path | None) -> CountedStep:
        raise NotBuilt(f"{step.network} is not built")

    monkeypatch.setattr(samples, "counted", counted)
    here = published_step("a", (8, 3))
    found, left_out = step_samples([here, here, dataclasses.replace(here, gpu="Voodoo 2")], None)
    assert found == []
    assert left_out == {"a is not built": 2, "not in the catalog: Voodoo 2": 1}


def test_gpus_of_the_step_sources_are_in_the_catalog() -> None:
    for name in (*samples._STEP_GPUS, *HELD_OUT_GPUS):
        find_gpu(catalog_gpu(name))
    assert catalog_gpu("T4") == "T4"


@pytest.mark.parametrize(("gpu", "dtype", "conv_tf32", "kind", "expected"), [
    ("A100", "tf32", True, "product", "tf32"), ("A100", "tf32", True, "convolution", "tf32"),
    ("A100", "tf32", True, "memory", "float32"), ("A100", "tf32", True, "attention", "float32"),
    ("A100", "float32", True, "product", "float32"), ("A100", "float32", True, "recurrent", "tf32"),
    ("A100", "float32", True, "depthwise", "tf32"), ("A100", "float32", False, "convolution", "float32"),
    ("V100 16GB", "float32", True, "convolution", "float32"), ("MI300X", "tf32", True, "product", "float32"),
])  # fmt: skip
def test_rows_that_run_in_tf32(gpu: str, dtype: str, conv_tf32: bool, kind: str, expected: str) -> None:
    step = published_step("torchvision:vgg16", (8, 3, 224, 224), gpu=gpu, dtype=dtype, conv_tf32=conv_tf32)
    each = row(product(8, 8, 8))._replace(kind=kind)
    assert dtype_of(each, step, find_gpu(catalog_gpu(gpu))) == expected
    assert dtype_of(each._replace(dtype="float16"), step, find_gpu(catalog_gpu(gpu))) == "float16"


def test_steps_that_are_in_no_fit() -> None:
    step = published_step("torchvision:vgg16", (8, 3, 224, 224))
    assert fitted_to(step) == ""
    assert {source for source, about in SOURCES.items() if about.licence == "none seen"} == UNLICENSED
    for source in UNLICENSED:
        assert fitted_to(dataclasses.replace(step, source=source)) == "no licence"
    assert "data loading" in fitted_to(dataclasses.replace(step, family="recommender"))
    assert fitted_to(dataclasses.replace(step, caveats=("kept apart from the steps: for validation only",)))
    assert fitted_to(dataclasses.replace(step, source="profiler-trace")) == "under a profiler"
