"""What ops are described by: families, FLOPs, bytes, features, and where they stand in their step."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from described import spec, traced, work
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.pricing import Context, CostModel, Work, describe, describe_step, feature_names, op_label
from placer.pricing.gpu import rows_of
from placer.pricing.ops import UPDATE_PREFIX, family_of, updates
from placer.pricing.work import on_accelerator, work_of_features
from placer.profile import load, shipped
from placer.tracing.trace_data import OpCall, TensorSpec, Trace


def facts(found: Work) -> dict[str, Any]:
    """All that a work says of its op, by name."""
    names = ("flops", "bytes", *feature_names(found.family))
    features = dict(zip(names, found.features, strict=True))
    whole = {"family": found.family, "op": found.op, "dtype": found.dtype, "flops": found.flops, "bytes": found.bytes}
    return {**features, **whole, "label": op_label(found), "inside": found.shape.ops_inside}


def check(found: Work, expected: dict[str, Any]) -> None:
    known = facts(found)
    for name, value in expected.items():
        assert known[name] == (pytest.approx(value) if isinstance(value, float) else value), name


def numbers(*shape: int, stride: tuple[int, ...] | None = None) -> TensorSpec:
    return spec(*shape, stride=stride, dtype="int64")


X, MASK = spec(6, 30), spec(6, 30, dtype="bool")
COMPLEX = spec(6, 16, dtype="complex64")
Q, K, V = spec(2, 4, 5, 8), spec(2, 4, 7, 8), spec(2, 4, 7, 6)
BROADCAST = numbers(50, 64, stride=(1, 0))

#: An op, its operands and results, its other arguments, and what is known of it.
CALLS: list[tuple[str, list[TensorSpec], list[TensorSpec], tuple[Hashable, ...], dict[str, Any]]] = [
    (
        "add",
        [spec(4, 8), spec(8)],
        [spec(4, 8)],
        (1,),
        {"family": "elementwise", "flops": 32, "bytes": 288, "label": "aten::add"},
    ),
    ("mul", [spec(4, 8), spec(4, 8, stride=(0, 1))], [spec(4, 8)], (), {"bytes": 288}),
    ("exp", [spec(32)], [spec(32)], (), {"flops": 320}),
    ("new_zeros", [spec(500, 32)], [spec(10)], (), {"family": "elementwise", "bytes": 40}),
    ("mul", [X, MASK], [X], (), {"dtype": "float32+bool", "label": "aten::mul:float32+bool"}),
    ("mul", [X], [X], (0.5,), {"op": "aten::mul.number"}),
    ("never_heard_of", [spec(8, 8)], [spec(8, 8)], (), {"family": "elementwise", "flops": 64, "bytes": 512}),
    ("rand_like", [spec(4, 8)], [spec(4, 8)], (), {"family": "random", "flops": 32}),
    ("abs", [COMPLEX], [spec(6, 16)], (), {"dtype": "complex64"}),
    # What lies side by side is copied run by run: from the dimension on along which it lies, which a stack adds.
    ("stack", [spec(4, 4)] * 4, [spec(4, 4, 4)], (1,), {"inner": 4}),
    ("stack", [spec(4, 4)] * 4, [spec(4, 4, 4)], (-1,), {"inner": 1}),
    ("cat", [spec(6, 1), spec(6, 3)], [spec(6, 4)], (1,), {"inner": 2}),
    ("_softmax", [spec(4, 8, 16)], [spec(4, 8, 16)], (-1, False), {"family": "softmax", "flops": 6144}),
    ("sort", [X], [X], (), {"family": "sorting"}),
    ("native_layer_norm", [spec(6, 50), spec(50)], [spec(6, 50)], (), {"family": "normalization", "flops": 2400}),
    ("native_batch_norm", [spec(4, 8), spec(8)], [spec(4, 8)], (True,), {"op": "aten::native_batch_norm.rows"}),
    ("upsample_nearest2d", [spec(1, 1, 2, 2)], [spec(1, 1, 4, 4)], (), {"family": "pooling"}),
    ("sum", [spec(16, 8)], [spec(8)], (0,), {"family": "reduction", "flops": 128, "bytes": 544}),
    ("sum", [], [spec()], (), {"flops": 0}),
    ("sum", [MASK], [numbers()], (), {"op": "aten::sum.mask"}),
    ("embedding", [spec(50000, 8), numbers(4, 6)], [spec(4, 6, 8)], (), {"family": "indexing", "bytes": 1728}),
    ("embedding_dense_backward", [spec(4, 6, 8), numbers(4, 6)], [spec(50, 8)], (), {"bytes": 2304 + 3200 + 192}),
    ("index", [spec(50, 64), numbers(8)], [spec(8, 64)], (), {"dtype": "float32"}),
    ("index", [X, MASK], [spec(5)], (), {"op": "aten::index.mask"}),
    ("index_add", [spec(10, 16), numbers(5), spec(5, 16)], [spec(10, 16)], (0,), {"bytes": 12 * 80 + 40 + 8 * 160}),
    ("scatter_add", [spec(10, 64), BROADCAST, spec(50, 64)], [spec(10, 64)], (0,), {"wide": 1}),
    ("scatter", [spec(10, 64), BROADCAST, spec(50, 64)], [spec(10, 64)], (0,), {"wide": 0}),
    ("scatter", [spec(10, 64), BROADCAST], [spec(10, 64)], (0, 0), {"op": "aten::scatter.number", "moved": 3200}),
    (
        "index_put",
        [spec(9, 64), numbers(512), spec(512, 64)],
        [spec(9, 64)],
        (True,),
        {"op": "aten::index_put.accumulate"},
    ),
    ("addmm", [spec(7), spec(3, 5), spec(5, 7)], [spec(3, 7)], (), {"family": "matmul", "flops": 210, "bytes": 312}),
    ("bmm", [spec(4, 2, 3), spec(4, 3, 5, stride=(15, 1, 3))], [spec(4, 2, 5)], (), {"flops": 240}),
    ("mv", [spec(6, 8), spec(8)], [spec(6)], (), {"flops": 96, "bytes": 248}),
    ("mm", [spec(2, 2, dtype="bfloat16")] * 2, [spec(2, 2, dtype="bfloat16")], (), {"label": "aten::mm:bfloat16"}),
    (
        "scaled_dot_product_attention",
        [Q, K, V],
        [spec(2, 4, 5, 6)],
        (False, False, 0.1),
        {"family": "attention", "flops": 2 * 8 * 5 * 7 * 14},
    ),
    (
        "_native_multi_head_attention",
        [spec(3, 7, 16), spec(16, 16), spec(7, 7)],
        [spec(3, 7, 16)],
        (16, 4),
        {"family": "encoder"},
    ),
    ("linalg_inv_ex", [spec(3, 8, 8)], [spec(3, 8, 8), spec(3)], (), {"family": "linear_algebra", "flops": 3072}),
    ("linalg_qr", [spec(100), spec(2, 6, 4)], [spec(2, 6, 4)], (), {"flops": 384}),
    ("_cdist_forward", [spec(2, 5, 3), spec(2, 7, 3)], [spec(2, 5, 7)], (2.0,), {"flops": 420}),
    (
        "_cdist_backward",
        [spec(2, 5, 7), spec(2, 5, 3), spec(2, 7, 3), spec(2, 5, 7)],
        [spec(2, 5, 3)],
        (2.0,),
        {"flops": 420},
    ),
    ("_fft_c2c", [X], [X], ((0, 1), 0, True), {"family": "fourier", "flops": 900 * math.log2(182)}),
    ("_fft_r2c", [X], [COMPLEX], ((1,),), {"dtype": "float32"}),
    ("_fft_c2r", [COMPLEX], [X], ((1,),), {"dtype": "complex64"}),
    ("_local_scalar_dense", [spec()], [], (), {"family": "view", "flops": 0, "bytes": 0}),
    ("convolution", [spec(8, 8)], [spec(8, 8)], (), {"family": "other", "bytes": 512}),
    ("never_heard_of", [spec(8, 8)], [spec(8)], (), {"family": "other", "flops": 64}),
]


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda i: f"{CALLS[i][0]}-{i}")
def test_an_op_by_hand_is_described_by(number: int) -> None:
    op, inputs, outputs, args, expected = CALLS[number]
    check(work(f"aten::{op}", inputs, outputs, *args), expected)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda i: f"{CALLS[i][0]}-{i}")
def test_features_tell_all_that_an_op_is_priced_by(number: int) -> None:
    """So that what a journal keeps of an op is as good as the op."""
    op, inputs, outputs, args, _ = CALLS[number]
    found = work(f"aten::{op}", inputs, outputs, *args)
    again = work_of_features(found.family, found.op, found.dtype, found.features, found.effort, found.loads)
    assert again.features == found.features
    assert (again.place, again.shape.walk, op_label(again)) == (found.place, found.shape.walk, op_label(found))
    assert facts(again) == facts(found)
    assert again.shape.cut(again) == found.shape.cut(found)
    assert rows_of(again) == rows_of(found)
    for fit in load("amd-epyc-2-core", samples=False).fits:
        assert CostModel(fit).price_works([again]) == CostModel(fit).price_works([found])


@pytest.mark.parametrize("op", ["aten::never_heard_of", "mylib::conv", "aten::linalg_lu_solve"])
def test_an_unregistered_op_is_never_free(op: str) -> None:
    for inputs, outputs in (([spec(8, 8)], [spec(8, 8)]), ([spec(8, 8)], [spec()]), ([], [spec(64)])):
        found = work(op, inputs, outputs)
        assert found.flops > 0
        assert found.bytes >= 4 * (64 if inputs else 1)
    assert family_of("optimizer::Anything") == "optimizer"
    assert work("mylib::anything", [spec(8, 8)], [spec(8, 8)]).family == "other"


def test_views_move_nothing_and_updates_in_place_do() -> None:
    check(work("aten::transpose", [spec(8, 4)], [spec(4, 8)], view=True), {"family": "view", "flops": 0, "bytes": 0})
    added = work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True)
    check(added, {"in_place": 1, "bytes": 768, "label": "aten::add"})  # not another op
    assert work("aten::never_heard_of_", [spec(8, 8)], [spec(8)], in_place=True).family == "elementwise"


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


ENCODER_WEIGHTS = 16 * 48 + 16 * 16 + 2 * 16 * 32
#: A layer, the shape of its batch, one of its ops, and what is known of it in training (the encoder: in inference).
LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...], str, dict[str, Any]]] = [
    (lambda: nn.Conv1d(3, 8, 5), (2, 3, 20), "convolution", {"flops": 7680, "bytes": 4 * (120 + 256 + 128)}),
    (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 6, 7), "convolution", {"flops": 2 * 84 * 8 * 27}),
    (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), "convolution", {"flops": 2 * 16 * 8 * 36}),
    (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), "convolution", {"flops": 2 * 64 * 8 * 27}),
    (
        lambda: nn.Conv2d(8, 16, 3, groups=4),
        (2, 8, 10, 10),
        "convolution",
        {"flops": 2 * 128 * 16 * 18, "label": "aten::convolution"},
    ),
    (
        lambda: nn.Conv2d(8, 8, 3, groups=8),
        (1, 8, 7, 7),
        "convolution",
        {"label": "aten::convolution/depthwise", "flops": 2 * 25 * 8 * 9},
    ),
    (
        lambda: nn.Conv2d(8, 8, 3, groups=8, dilation=2),
        (1, 8, 7, 7),
        "convolution_backward",
        {"label": "aten::convolution_backward/dilated_depthwise"},
    ),
    (
        lambda: nn.Conv2d(8, 8, 1, groups=8, dilation=2),
        (1, 8, 7, 7),
        "convolution",
        {"label": "aten::convolution/depthwise"},
    ),
    (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 5), "convolution", {"flops": 2 * 50 * 48 * 9}),
    (lambda: nn.Conv2d(3, 16, 1), (1, 3, 4, 4), "convolution_backward", {"flops": 1536}),
    (
        lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 16, 1)),
        (1, 48),
        "convolution",
        {"flops": 1536},
    ),
    (
        lambda: nn.GRU(5, 40, 2),
        (3, 4, 5),
        "gru",
        {"inside": 48, "length": 3, "batch": 4, "input": 5, "hidden": 40, "stacked": 2, "weights": 120 * 125},
    ),
    (Attend, (3, 5, 8), "scaled_dot_product_attention", {"flops": 2 * 2 * 6 * 25 * 4}),
    (Attend, (3, 5, 8), "scaled_dot_product_attention_backward", {"flops": 5 * 2 * 6 * 25 * 4}),
    (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(),
        (3, 7, 16),
        "_transformer_encoder_layer_fwd",
        {"flops": 42 * ENCODER_WEIGHTS + 4 * 21 * 7 * 16},
    ),
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm", {"flops": 24 * 28 * 12}),
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm_backward", {"flops": 48 * 28 * 12}),
    (lambda: nn.GRU(5, 7, bidirectional=True), (3, 4, 5), "gru", {"flops": 24 * 2 * 21 * 12}),
    (lambda: nn.RNNCell(5, 7), (4, 5), "rnn_tanh_cell", {"flops": 8 * 7 * 12}),
]


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=lambda i: f"{LAYERS[i][2]}-{i}")
def test_an_op_of_a_layer_is_described_by(number: int) -> None:
    build, shape, op, expected = LAYERS[number]
    model = build()
    check(traced(model, f"aten::{op}", shape, mode="train" if model.training else "infer"), expected)


# --- updates of parameters ----------------------------------------------------------------------------------------


def update(name: str, tensors: int = 1, **settings: object) -> Work:
    call = OpCall(f"optimizer::{name}", (spec(1000),), (), tuple(settings.items()), phase="optimizer")
    return describe(call, Context(footprint_bytes=0, recording=True, updates=tensors))


def launches(found: Work) -> float:
    return found.shape.launches(found)


def test_on_an_accelerator_it_is_a_few_kernels_for_all_tensors() -> None:
    assert launches(update("Adam", 100)) == pytest.approx(7 / 100)
    assert launches(update("Adam", 1000, fused=True)) == pytest.approx(5 / 1000)  # more than one launch takes
    together, fused = on_accelerator(update("Adam", 9)), on_accelerator(update("Adam", 9, fused=True))
    assert (together.op, fused.op) == ("optimizer::Adam.foreach", "optimizer::Adam.fused")
    assert (together.bytes, fused.bytes) == (pytest.approx(18 * 4000), 7 * 4000)  # intermediates are written and read


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


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((row.op.removeprefix(UPDATE_PREFIX), {}) for row in updates()),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"weight_decay": 0.1}),
        ("Adam", {"weight_decay": 0.1}),
    ],
)
def test_the_table_of_updates_is_what_torch_runs(name: str, settings: dict[str, float]) -> None:
    parameters = [nn.Parameter(torch.randn(64)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=1e-3, foreach=True, **settings)
    for _ in range(8):  # the first steps of some differ
        for parameter in parameters:
            parameter.grad = torch.randn(64)
        with Counted(len(parameters)) as counted:
            optimizer.step()
    known = update(name, **settings)
    assert counted.ops == pytest.approx(launches(known))
    assert round(counted.passes) == round(on_accelerator(known).bytes / 4000)


# --- as an accelerator's kernels are told apart -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "width", "masked", "backend"),
    [
        ("bfloat16", 64, False, "flash"),
        ("float16", 264, False, "efficient"),
        ("bfloat16", 64, True, "efficient"),
        ("float32", 64, True, "efficient"),
        ("float32", 30, False, "math"),
        ("bfloat16", 60, True, "math"),
        ("float64", 64, False, "math"),
    ],
)
def test_attention_is_told_apart_by_what_runs_it(dtype: str, width: int, masked: bool, backend: str) -> None:
    q = spec(2, 4, 16, width, dtype=dtype)
    op = "aten::scaled_dot_product_attention"
    found = on_accelerator(work(op, [q, q, q, *([spec(16, 16, dtype=dtype)] if masked else [])], [q], False))
    assert found.op == f"{op}.{backend}"


def test_a_small_recurrent_layer_is_a_few_kernels_and_a_large_one_two_for_every_time_step() -> None:
    """As in the calibrations of an H100 and an H200 (calibration/records)."""
    small = traced(nn.LSTM(8, 128, num_layers=4), "aten::lstm", (64, 32, 8), mode="infer")
    assert launches(small) == pytest.approx(11, rel=0.2)
    large = traced(nn.LSTM(89, 512, num_layers=2), "aten::lstm", (17, 21, 89), mode="infer")
    assert launches(large) == pytest.approx(78, rel=0.1)
    wide = traced(nn.GRU(20, 256), "aten::gru", (35, 152, 20), mode="infer")
    assert launches(wide) == pytest.approx(71, rel=0.1)


# --- where an op stands in its step -------------------------------------------------------------------------------


def step_of(*calls: tuple[str, int, str], mode: str = "infer", **totals: Any) -> list[dict[str, Any]]:
    """What is known of each call of a step, given names, numbers of elements and phases."""
    found = tuple(
        OpCall(f"aten::{op}", (spec(n),), (spec(n),), view=op == "view", phase=phase)  # type: ignore[arg-type]
        for op, n, phase in calls
    )
    return [facts(one) for one in describe_step(Trace(found, mode, (), (), (), (), **totals))]  # type: ignore[arg-type]


def test_an_op_knows_what_ran_since_its_own_last_call_and_steps_follow_each_other() -> None:
    calls = ("relu", 4), ("relu", 1 << 20), ("view", 1 << 20), ("exp", 4)
    found = step_of(*((op, n, "forward") for op, n in calls))
    assert [each["previous"] for each in found] == [32, 32, 8 << 20, 8 << 20]  # a view leaves what was before it
    assert [each["first"] for each in found] == [1, 0, 1, 1]
    assert [each["reuse_distance"] for each in found] == [32, 0, 8 << 20, 8 << 20]
    assert {each["kinds"] for each in found} == {3}


def test_a_step_is_described_once_and_equal_work_is_one_object() -> None:
    step = Trace((OpCall("aten::relu", (spec(8),), (spec(8),)),) * 5, "infer", (), (), (), ())
    first, *rest = describe_step(step)
    assert describe_step(step) is describe_step(step)
    assert len({id(one) for one in rest}) == 1
    assert first != rest[0]
    larger = replace(step, calls=(OpCall("aten::relu", (spec(16),), (spec(16),)),))
    assert describe_step(larger)[0].bytes == 128


def test_what_ships_knows_all_transforms() -> None:
    labels = {
        op_label(work(f"aten::{op}", *calls))
        for op, calls in (
            ("_fft_r2c", ([X], [COMPLEX])),
            ("_fft_c2r", ([COMPLEX], [X])),
            ("_fft_c2c", ([COMPLEX], [COMPLEX])),
        )
    }
    for name in shipped():
        assert all(labels <= set(fit.families["fourier"].offsets) for fit in load(name, samples=False).fits), name
