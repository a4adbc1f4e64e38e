"""How an accelerator's kernels are told apart: not by what matters to a CPU alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from described import feature, spec, traced, work
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.pricing import parameter_updates
from placer.pricing.cost_model import CostModel
from placer.pricing.describe import feature_names
from placer.pricing.families import FAMILIES
from placer.pricing.floors import roofline_seconds
from placer.pricing.on_accelerator import launches, on_accelerator
from placer.pricing.op_labels import known_labels
from placer.pricing.work import Work
from placer.profile import DeviceFit

RATES = {"dispatch_seconds": 2e-6, "flops/float32": 1e13, "bytes_per_second": 1e12}
GPU = DeviceFit("cuda", 1, RATES, {}, {}, {})


def label(op: str, inputs: list[object], outputs: list[object], *args: object) -> str:
    return known_labels(on_accelerator(work(op, inputs, outputs, *args)))[0]  # type: ignore[arg-type]


def test_operands_that_select_no_other_kernel_make_no_other_op() -> None:
    x, mask, rows = spec(8, 4), spec(8, 4, dtype="bool"), spec(8, dtype="int64")
    assert label("aten::mul", [x], [x], 0.5) == "aten::mul"
    assert label("aten::mul", [x, mask], [x]) == "aten::mul"
    assert label("aten::sum", [mask], [spec(dtype="int64")]) == "aten::sum"
    assert label("aten::native_batch_norm", [x, spec(4)], [x], True) == "aten::native_batch_norm"
    # Other kernels run here: the mask is searched, the rows are sorted.
    assert label("aten::index", [x, mask], [spec(5)]) == "aten::index.mask"
    assert label("aten::index_put", [x, rows, x], [x], True) == "aten::index_put.accumulate"
    assert label("aten::index_put", [x, rows, x], [x], False) == "aten::index_put"


def test_where_an_op_stands_among_a_cpus_caches_is_no_feature() -> None:
    one = work("aten::add", [spec(8, 4)] * 2, [spec(8, 4)])
    values = (*one.sizes, *one.flags)
    here = dict(zip(feature_names("elementwise"), values, strict=True))
    seen = on_accelerator(one)
    there = dict(zip(feature_names("elementwise"), (*seen.sizes, *seen.flags), strict=True))
    changed = {name for name in here if here[name] != there[name]}
    assert changed <= {"kinds", "previous", "reuse_distance", "kept", "recording", "evicted", "first"}
    assert there["footprint"] == here["footprint"]
    assert all(there[name] == 0.0 for name in ("kinds", "previous", "recording", "first"))


@pytest.mark.parametrize("family", FAMILIES)
def test_applied_twice_it_changes_nothing_more(family: str) -> None:
    sizes, flags = (len(FAMILIES[family].sizes), len(FAMILIES[family].flags))
    one = Work(family, "aten::op.number", "float32+bool", 1e6, 1e6, (64.0,) * (sizes + 4), (1.0,) * (flags + 5))
    assert on_accelerator(on_accelerator(one)) == on_accelerator(one)


@pytest.mark.parametrize(("dtype", "width", "masked", "backend"), [
    ("bfloat16", 64, False, "flash"), ("float16", 256, False, "flash"), ("float16", 264, False, "efficient"),
    ("bfloat16", 64, True, "efficient"), ("float32", 64, False, "efficient"), ("float32", 64, True, "efficient"),
    ("float32", 30, False, "math"), ("bfloat16", 60, True, "math"), ("float64", 64, False, "math"),
])  # fmt: skip
def test_attention_is_told_apart_by_what_runs_it(dtype: str, width: int, masked: bool, backend: str) -> None:
    q = spec(2, 4, 16, width, dtype=dtype)
    inputs = [q, q, q, *([spec(16, 16, dtype=dtype)] if masked else [])]
    for op in ("aten::scaled_dot_product_attention", "aten::scaled_dot_product_attention_backward"):
        found = on_accelerator(work(op, inputs, [q], False))
        assert found.op == f"{op}.{backend}"


def adam(tensors: int, **settings: object) -> Work:
    update = work("optimizer::Adam", [spec(1000)], [], *settings.items(), phase="optimizer")
    return replace(update, sizes=(update.sizes[0], float(tensors), *update.sizes[2:]))


def test_an_update_is_a_few_kernels_for_all_tensors() -> None:
    assert launches(adam(100)) == pytest.approx(7 / 100)
    assert launches(adam(100, fused=True)) == pytest.approx(1 / 100)
    assert launches(adam(1000, fused=True)) == pytest.approx(5 / 1000)  # more than one launch takes
    assert roofline_seconds(adam(200), GPU) < 0.5e-6
    assert roofline_seconds(adam(200), DeviceFit("cpu", 1, RATES, {}, {}, {})) > 12 * 2e-6


def test_intermediates_of_an_update_are_written_and_read() -> None:
    together, fused = on_accelerator(adam(100)), on_accelerator(adam(100, fused=True))
    assert (together.op, fused.op) == ("optimizer::Adam.foreach", "optimizer::Adam.fused")
    assert (together.bytes, fused.bytes) == (pytest.approx(18 * 4000), pytest.approx(7 * 4000))
    assert on_accelerator(together).bytes == together.bytes


class Counted(TorchDispatchMode):
    """Counts the ops over lists of tensors, and how many times all of those tensors are read and written."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.tensors, self.ops, self.passes = tensors, 0, 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        read = {t.data_ptr() for t in leaves((args, kwargs)) if t.numel() > 1}
        written = {t.data_ptr() for t in leaves(result if result is not None else args[0]) if t.numel() > 1}
        if func._overloadpacket.__name__.startswith("_foreach") and read:
            self.ops += 1
            self.passes += len(read) / self.tensors + len(written) / self.tensors
        return result


def leaves(nest: object) -> list[Tensor]:
    if isinstance(nest, Tensor):
        return [nest]
    items = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, (list, tuple)) else ()
    return [leaf for item in items for leaf in leaves(item)]


@pytest.mark.parametrize(("name", "settings"), [
    *((name, {}) for name in parameter_updates._FOREACH),
    ("SGD", {"momentum": 0.9}), ("SGD", {"weight_decay": 0.1}), ("Adam", {"weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9}),
])  # fmt: skip
def test_the_table_of_updates_is_what_torch_runs(name: str, settings: dict[str, float]) -> None:
    parameters = [nn.Parameter(torch.randn(64)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=1e-3, foreach=True, **settings)
    for _ in range(8):  # the first steps of some differ
        for parameter in parameters:
            parameter.grad = torch.randn(64)
        with Counted(len(parameters)) as counted:
            optimizer.step()
    ops, factor = parameter_updates.foreach(
        f"optimizer::{name}", momentum="momentum" in settings, weight_decay="weight_decay" in settings
    )
    plain = parameter_updates._PASSES.get(name, parameter_updates._OTHER)
    assert (counted.ops, round(counted.passes)) == (ops, round(factor * plain))


class CountedRows(TorchDispatchMode):
    """Counts the ops on numbers of an update of rows, and the tensors they read and write."""

    #: What moves no numbers: views, and what makes a sparse tensor of its parts.
    FREE = frozenset(("_values", "detach", "_sparse_coo_tensor_with_dims_and_tensors", "zeros_like"))

    def __init__(self) -> None:
        super().__init__()
        self.ops = self.passes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        read = [t for t in leaves(args) if t.is_floating_point() and t.numel() > 1]
        written = [t for t in leaves(result) if t.is_floating_point() and t.numel() > 1]
        if name not in self.FREE and read and written:
            self.ops += 1
            self.passes += len(read) + len(written) - (name == "sparse_mask")  # of the mask only the row numbers
        return result


def test_the_table_holds_for_an_update_of_rows() -> None:
    table = nn.Embedding(1000, 64, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.arange(200)).sum().backward()
        with CountedRows() as counted:
            optimizer.step()
    ops, factor = parameter_updates.foreach("optimizer::SparseAdam", momentum=False, weight_decay=False)
    assert (counted.ops, counted.passes) == (ops, round(factor * parameter_updates._PASSES["SparseAdam"]))


def test_a_recurrent_layer_is_a_kernel_for_each_time_step_at_the_least() -> None:
    layer = traced(nn.LSTM(8, 16), "aten::lstm", (20, 4, 8), mode="infer")
    assert launches(layer) == 20
    assert feature(layer, "length") == 20


def test_an_op_without_samples_is_priced_as_the_accelerator_sees_it() -> None:
    seconds, _, _ = CostModel(GPU).price_works([adam(100), adam(100, fused=True)])
    assert seconds[0] == pytest.approx(7 / 100 * 2e-6 + 18 * 4000 / 1e12)
    assert seconds[1] == pytest.approx(1 / 100 * 2e-6 + 7 * 4000 / 1e12)
    assert math.isfinite(sum(seconds))
