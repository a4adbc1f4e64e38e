"""How an op call is described, in its step and to an accelerator, and the names its costs are kept under."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from described import feature, spec, traced, work
from priced import FLAT, device, family, matmul
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.pricing.cost_model import CostModel
from placer.pricing.describe import (
    CONTEXT_FLAGS,
    CONTEXT_SIZES,
    Context,
    Place,
    amounts,
    describe_step,
    different_works,
    feature_names,
    fitted_features,
    foreign_family,
    inputs_of,
    known_labels,
    launches,
    octave,
    on_accelerator,
    op_label,
    ops_inside,
    places,
    reuse_distances,
    reuse_share,
)
from placer.pricing.families import FAMILIES, family_of, parameter_updates
from placer.pricing.floors import roofline_seconds
from placer.pricing.work import SUFFIX, Work
from placer.profile import DeviceFit
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, TensorSpec, Trace
from placer.workload import make_workload


@pytest.mark.parametrize("op", ["aten::new_zeros", "aten::new_ones", "aten::new_full"])
def test_what_only_says_of_what_kind_the_result_is_is_not_read(op: str) -> None:
    """A small tensor made like a large one does not read the large one."""
    found = work(op, [spec(500, 32)], [spec(10)])
    assert (found.family, found.bytes) == ("elementwise", 40)
    assert found.sizes == work("aten::zeros", [], [spec(10)]).sizes


def test_an_update_in_place_is_no_view() -> None:
    assert work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True).bytes > 0


@pytest.mark.parametrize("op", ["aten::never_heard_of", "mylib::conv", "aten::linalg_lu_solve"])
def test_an_unregistered_op_is_never_free(op: str) -> None:
    for inputs, outputs in (([spec(8, 8)], [spec(8, 8)]), ([spec(8, 8)], [spec()]), ([], [spec(64)])):
        found = work(op, inputs, outputs)
        assert found.flops > 0
        assert found.bytes >= 4 * (64 if inputs else 1)


def test_what_an_unregistered_op_looks_like() -> None:
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8, 8)]).family == "elementwise"
    assert work("aten::never_heard_of", [spec(8, 8)], [spec(8)]).family == "other"
    assert work("mylib::anything", [spec(8, 8)], [spec(8, 8)]).family == "other"
    assert family_of("optimizer::Anything") == "optimizer"


def test_an_overload_with_too_few_operands_falls_back() -> None:
    found = work("aten::convolution", [spec(8, 8)], [spec(8, 8)])
    assert found.family == "other"
    assert found.bytes == 4 * 128


def test_one_is_not_true() -> None:
    image, weight, out = spec(1, 4, 8, 8), spec(4, 4, 1, 1), spec(1, 4, 8, 8)
    not_transposed = work("aten::convolution", [image, weight], [out], (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    assert feature(not_transposed, "transposed") == 0
    normalized = [spec(4, 8), spec(8), spec(8)]
    one = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], 1, 0.1, 1e-5)
    true = work("aten::native_batch_norm", normalized, [spec(4, 8), spec(8), spec(8)], True, 0.1, 1e-5)
    assert (feature(one, "training"), feature(true, "training")) == (0, 1)
    heads = [spec(2, 4, 8, 16)] * 3
    assert feature(work("aten::scaled_dot_product_attention", heads, heads[:1], 1, False, 0.0, False), "causal") == 0


def test_the_place_in_the_step_is_a_feature() -> None:
    kept = work("aten::relu", [spec(8)], [spec(8)], kept_bytes=32)
    backward = work("aten::relu", [spec(8)], [spec(8)], phase="backward")
    assert (feature(kept, "kept"), feature(kept, "recording"), feature(kept, "footprint")) == (1, 1, 1000)
    assert (feature(backward, "kept"), feature(backward, "recording")) == (0, 0)


def test_the_dtype_is_the_results() -> None:
    assert work("aten::mm", [spec(2, 2, dtype="bfloat16")] * 2, [spec(2, 2, dtype="bfloat16")]).dtype == "bfloat16"
    assert work("aten::embedding", [spec(9, 2), spec(3, dtype="int64")], [spec(3, 2)]).dtype == "float32"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_names_all_its_features(family: str) -> None:
    names = feature_names(family)
    assert len(set(names)) == len(names)
    start = len(FAMILIES[family].sizes)
    assert names[start : start + len(CONTEXT_SIZES)] == CONTEXT_SIZES
    assert names[-len(CONTEXT_FLAGS) :] == CONTEXT_FLAGS


def test_an_op_knows_what_went_through_the_caches_before_it() -> None:
    large, small = spec(1 << 20), spec(4)
    calls = [
        OpCall("aten::relu", (small,), (small,)),
        OpCall("aten::relu", (large,), (large,)),
        OpCall("aten::view", (large,), (large,), view=True),
        OpCall("aten::relu", (small,), (small,)),
    ]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    before = [feature(w, "previous") for w in works]
    # Steps follow each other; a view moves nothing, and so leaves what was before it.
    assert before == [32, 32, 8 << 20, 8 << 20]
    assert works[0] is not works[3]


def test_equal_work_in_equal_places_is_one_object() -> None:
    calls = tuple(OpCall("aten::relu", (spec(8),), (spec(8),)) for _ in range(5))
    first, *rest = describe_step(Trace(calls, "infer", (), (), (), ()))
    assert len({id(w) for w in rest}) == 1
    assert first != rest[0]


def test_a_step_is_described_once_and_another_made_of_it_anew() -> None:
    step = Trace((OpCall("aten::relu", (spec(8),), (spec(8),)),), "infer", (), (), (), ())
    assert describe_step(step) is describe_step(step)
    assert step == replace(step)
    larger = replace(step, calls=(OpCall("aten::relu", (spec(16),), (spec(16),)),))
    assert [found.bytes for found in (*describe_step(step), *describe_step(larger))] == [64, 128]


def test_different_works_and_their_order_give_the_step() -> None:
    ops = ("relu", "exp", "exp", "relu", "exp", "exp")
    calls = tuple(OpCall(f"aten::{name}", (spec(8),), (spec(8),)) for name in ops)
    step = Trace(calls, "infer", (), (), (), ())
    works, order = different_works(step)
    assert len({id(found) for found in works}) == len(works) < len(order)
    assert tuple(works[number] for number in order) == describe_step(step)


def test_python_evicts_the_code_of_forward_ops_alone() -> None:
    x = spec(4)
    calls = OpCall("aten::relu", (x,), (x,)), OpCall("aten::tanh", (x,), (x,), phase="backward")
    works = describe_step(Trace(calls, "train", (), (), (), (), python_calls=40, evicted_calls=10.0))
    assert [feature(found, "evicted") for found in works] == [0.25, 0]
    assert amounts(works[0])["evicted"] == 0.25


def test_an_op_in_a_loop_has_a_shorter_reuse_distance_than_one_that_stands_alone() -> None:
    small, large = spec(4), spec(1 << 20)
    calls = [OpCall("aten::relu", (small,), (small,))] * 3 + [OpCall("aten::exp", (large,), (large,))]
    works = describe_step(Trace(tuple(calls), "infer", (), (), (), ()))
    assert [feature(found, "first") for found in works] == [1, 0, 0, 1]
    assert [feature(found, "reuse_distance") for found in works] == [8 << 20, 0, 0, 128]
    assert [amounts(found)["reuse_distance"] for found in works] == [pytest.approx(0.9, abs=1e-6), 0, 0, 0]


def test_what_a_family_does_not_say_is_the_usual() -> None:
    plain = work("aten::add", [spec(8), spec(8)], [spec(8)])
    assert ops_inside(plain) == 1
    product = work("aten::mm", [spec(8, 8), spec(8, 8)], [spec(8, 8)])
    assert (FAMILIES["matmul"].variant(product), FAMILIES["matmul"].evaluates(product)) == ("", False)


def test_an_operand_that_is_written_counts_also_where_the_result_is_smaller() -> None:
    assert work("aten::never_heard_of_", [spec(8, 8)], [spec(8)], in_place=True).family == "elementwise"


def test_gradients_are_recorded_around_forward_ops_alone() -> None:
    call = OpCall("aten::relu", (spec(8),), (spec(8),))
    modes = {mode: describe_step(Trace((call,), mode, (), (), (), ()))[0] for mode in ("train", "infer")}
    assert [feature(modes[mode], "recording") for mode in ("train", "infer")] == [1, 0]

KB, MB = 1 << 10, 1 << 20


def reuse_bytes(*ops: tuple[str, float]) -> list[float]:
    return [place.reuse_bytes for place in places(ops)]


def test_an_op_that_repeats_finds_its_code_where_it_left_it() -> None:
    assert reuse_bytes(("norm", 4 * KB), ("norm", 4 * KB), ("norm", 4 * KB))[1:] == [0.0, 0.0]


def test_what_others_moved_in_between_evicts_an_ops_code() -> None:
    ops = [("relu", 4 * KB), ("mm", MB), ("exp", MB), ("relu", 4 * KB)]
    assert reuse_bytes(*ops)[-1] == 2 * MB


def test_its_own_operands_are_not_counted() -> None:
    assert reuse_bytes(("relu", MB), ("exp", 4 * KB), ("relu", MB))[-1] == 4 * KB


def test_steps_follow_each_other() -> None:
    # The first mm of a step comes after all that followed the last one of the step before.
    ops = [("relu", 4 * KB), ("mm", 8 * KB), ("exp", MB)]
    assert reuse_bytes(*ops) == [octave(MB + 8 * KB), octave(MB + 4 * KB), octave(12 * KB)]


def test_a_view_moves_nothing_and_is_still_an_op() -> None:
    assert reuse_bytes(("view", 0.0), ("mm", MB), ("view", 0.0), ("view", 0.0)) == [0.0, 0.0, MB, 0.0]
    assert places([("view", 0.0)]) == [Place(0.0, 0.0, first=True)]


def test_only_the_first_of_a_name_is_first_and_views_do_not_hide_what_came_before_them() -> None:
    found = places([("mm", MB), ("view", 0.0), ("mm", MB), ("exp", KB)])
    assert [place.first for place in found] == [True, True, False, True]
    assert [place.previous_bytes for place in found] == [KB, MB, MB, MB]


def test_calls_that_differ_in_less_than_an_octave_stand_in_one_place() -> None:
    assert octave(1000.0) == octave(1100.0) == 1024.0
    assert octave(0.0) == octave(0.5) == 0.0


def test_a_context_knows_the_step() -> None:
    x = TensorSpec((4,), (1,), "float32")
    calls = tuple(OpCall(op, (x,), (x,)) for op in ("aten::relu", "aten::exp", "aten::relu"))
    whole = Context.of(Trace(calls, "train", (), (), (), (), peak_activation_bytes=64))
    assert (whole.footprint_bytes, whole.kinds, whole.recording, whole.updates) == (64, 2, True, 1)
    assert whole.sizes == (64.0, 2.0, 0.0, 0.0)


def test_a_context_of_a_training_step_counts_its_updates_and_what_was_evicted() -> None:
    x = TensorSpec((4,), (1,), "float32")
    calls = tuple(OpCall("optimizer::SGD", (x,), (), phase="optimizer") for _ in range(3))
    found = Context.of(Trace(calls, "infer", (), (), (), (), python_calls=8, evicted_calls=2.0))
    assert (found.updates, found.evicted, found.recording) == (3, 0.25, False)
    assert Context.of(Trace((), "infer", (), (), (), (), evicted_calls=2.0)).evicted == 1.0
    assert Context.of(Trace((), "infer", (), (), (), ())).kinds == 1

KB = 1 << 10


@pytest.mark.parametrize(("moved", "share"), [(0, 0.0), (16 * KB - 1, 0.0), (512 * KB - 1, 0.5), (1 << 40, 1.0)])
def test_code_comes_back_from_farther_the_more_was_moved(moved: float, share: float) -> None:
    assert reuse_share(moved) == pytest.approx(share)


def test_distances_are_what_ran_between_in_a_step_that_repeats() -> None:
    assert reuse_distances([("a", 1.0), ("b", 2.0), ("a", 4.0), ("c", 8.0)]) == [8.0, 13.0, 2.0, 7.0]
    assert reuse_distances([("a", 1.0), ("a", 2.0)]) == [0.0, 0.0]


def test_another_dtype_is_another_op() -> None:
    assert op_label(matmul(4)) == "aten::mm"
    assert op_label(matmul(4, "bfloat16")) == "aten::mm:bfloat16"


@pytest.mark.parametrize(
    ("layer", "label"),
    [
        (nn.Conv2d(8, 16, 3), "aten::convolution"),
        (nn.Conv2d(8, 16, 3, groups=2), "aten::convolution"),
        (nn.Conv2d(8, 8, 3, groups=8), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 8, 3, groups=8, dilation=2), "aten::convolution/dilated_depthwise"),
        (nn.Conv2d(8, 8, 1, groups=8, dilation=2), "aten::convolution/depthwise"),
        (nn.Conv2d(8, 16, 3, groups=8, dtype=torch.float64), "aten::convolution/depthwise:float64"),
    ],
)
def test_a_depthwise_convolution_is_an_op_of_its_own(layer: nn.Conv2d, label: str) -> None:
    image = torch.randn(2, 8, 6, 6, dtype=layer.weight.dtype)
    traced = trace(make_workload(layer, example=(image,), mode="train"))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found["aten::convolution"] == label
    assert found["aten::convolution_backward"] == label.replace("convolution", "convolution_backward")


@pytest.mark.parametrize(
    ("layer", "shape", "label"),
    [
        (nn.BatchNorm1d(8), (4, 8), "aten::native_batch_norm.rows"),
        (nn.BatchNorm1d(8), (4, 8, 1), "aten::native_batch_norm"),
        (nn.BatchNorm2d(8), (4, 8, 3, 3), "aten::native_batch_norm"),
        (nn.LayerNorm(8), (4, 8), "aten::native_layer_norm"),
    ],
)
def test_a_batch_norm_of_rows_is_an_op_of_its_own(layer: nn.Module, shape: tuple[int, ...], label: str) -> None:
    traced = trace(make_workload(layer, shape))
    found = {call.op: op_label(work) for call, work in zip(traced.calls, describe_step(traced), strict=True)}
    assert found[label.partition(SUFFIX)[0]] == label


@pytest.mark.parametrize(
    ("picked", "label"), [(lambda x: x > 0, "aten::index_put.mask"), (lambda x: x.argmax(0), "aten::index_put")]
)
def test_an_assignment_by_a_mask_is_an_op_of_its_own(
    picked: Callable[[torch.Tensor], torch.Tensor], label: str
) -> None:
    class Assigned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = torch.zeros_like(x)
            out[picked(x)] = 1.0
            return x * out

    traced = trace(make_workload(Assigned(), (3, 4), mode="infer"))
    assert label in {op_label(work) for work in describe_step(traced)}


def test_in_place_is_not_another_op() -> None:
    assert op_label(matmul(4, op="aten::add_")) == op_label(matmul(4, op="aten::add"))


def test_amounts_and_sizes_are_logarithms_and_flags_are_not() -> None:
    work = replace(matmul(4), flops=7.0, bytes=0.0, sizes=(1.0, 3.0), flags=(0.25, 1.0))
    assert inputs_of(work) == pytest.approx((3.0, 0.0, 1.0, 2.0, 0.25, 1.0))


def test_a_fit_of_the_features_of_now_is_not_foreign() -> None:
    own = family([matmul(4)], [0.0], FLAT)
    assert len(fitted_features("matmul")) == len(inputs_of(matmul(4)))
    assert foreign_family(device({"matmul": own})) is None
    assert foreign_family(device({"softmax": own})) == "softmax"
    assert fitted_features("no such family") == ()

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
